"""What the nodes of eager's history keep, and how it is put right in a history that was made without some inputs.

    h = x * 2; y = h.exp()        history: MulBackward (keeps nothing), ExpBackward (keeps y)

A backward that is differentiated itself runs the program again for a history of eager's. Inputs that eager does not keep may be gone by
then; the program runs on zeros in their place, and what the nodes keep of it gets the values that follow from what the compiled forward saved.

    kept_nodes(recorder, history)             while tracing: the tape nodes of all that is kept (None: a node does not show it)
    held_inputs(tape, kept, saved)            the inputs that must live for it: what they lead to does not follow from the saved values
    kept_graph(tape, given, wanted, ...)      the graph that computes some of them
    put_right(node, values)                   writes them into a node of a real history
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from dyncomp.aot.build import build_graph
from dyncomp.aot.ends import hides, keeping_part, saved_names
from dyncomp.aot.epilogue import Epilogue, own_memory
from dyncomp.aot.graph import AtenGraph
from dyncomp.aot.late import CHECK
from dyncomp.aot.partition import packed_meta
from dyncomp.aot.store import Recorder
from dyncomp.aot.tape import Constant, Input, Node, Tape, is_random, map_nodes, node_facts, parents
from dyncomp.fake.tensor import FakeTensor

aten = torch.ops.aten

# These raise for some values, which zeros may be.
_PARTICULAR = ("linalg", "_linalg", "cholesky", "_cholesky", "lu_", "_lu_", "multinomial", "_assert", "segment_reduce", "_segment_reduce",
               "_pack_padded", "ctc_loss", "_ctc_loss", "geqrf", "ormqr", "logdet", "slogdet", "histc", "histogram", "bincount")  # fmt: skip


def saved_tensors(node: Any) -> Iterator[torch.Tensor]:
    """What a node keeps, in a fixed order. Raises RuntimeError where that was written since, or given up."""
    part = keeping_part(node)
    for name in saved_names(part.__class__):
        kept = getattr(part, f"_{name}")
        for one in kept if isinstance(kept, tuple) else (kept,):
            if isinstance(one, torch.Tensor):
                yield one


def kept_nodes(recorder: Recorder, history: Sequence[Any]) -> list[tuple[str, list[Node | None]]] | None:
    """By node of a fake history its name and what it keeps (None: a number of the program's); in the mode that recorded it. None in
    place of all where that cannot be told of one.
    """
    found: list[tuple[str, list[Node | None]]] = []
    for node in history:
        if hides(node):
            return None
        try:
            tensors = list(saved_tensors(node))
        except RuntimeError:  # written since: where a backward comes to it, eager raises
            return None
        found.append((node.name(), [recorder.read(one) if type(one) is FakeTensor else None for one in tensors]))
    return found


def held_inputs(tape: Tape, kept: Sequence[Node], saved: Sequence[Node]) -> set[int]:
    """The inputs without which the forward `tape` cannot be run again for a right history, given these saved values."""
    gone = underived(tape, set(saved))
    roots = [node for node in kept if node in gone]
    for node in tape:
        if _looks_at_values(node):
            roots += parents(node)
    live = set(roots)
    for node in reversed(tape):
        if node in live:
            live.update(parents(node))
    return {node.args[0] for node in live if node.op is Input}


def _looks_at_values(node: Node) -> bool:
    facts = node_facts(node)
    if facts is None:
        return False
    # An index of whole numbers has a size that does not depend on them; of masks it does.
    masks = node.op is not aten.index.Tensor or any(one.meta.dtype in (torch.bool, torch.uint8) for one in _indices(node))
    return node.op is CHECK or facts.data_value or facts.data_shape and masks or node.op._schema.name.split("::")[1].startswith(_PARTICULAR)


def _indices(node: Node) -> Iterator[Node]:
    return (one for one in node.args[1] if type(one) is Node)


def underived(tape: Tape, given: set[Node]) -> set[Node]:
    """The nodes that do not follow from `given`."""
    gone: set[Node] = set()
    for node in tape:
        if node not in given and (node.op is Input or is_random(node) or any(parent in gone for parent in parents(node))):
            gone.add(node)
    return gone


def dependent_on(tape: Tape, inputs: set[int]) -> set[Node]:
    """The nodes that depend on these inputs."""
    found: set[Node] = set()
    for node in tape:
        if node.args[0] in inputs if node.op is Input else any(parent in found for parent in parents(node)):
            found.add(node)
    return found


def kept_graph(tape: Tape, given: Sequence[tuple[Node | None, Any]], wanted: Sequence[Node], env: Any, original: Any) -> AtenGraph:
    """The graph of `wanted`. `given`: by placeholder the node and the fake of what comes in there; without a node nobody may read it."""
    made: dict[Node, Node] = {}
    new: Tape = []
    for index, (node, _) in enumerate(given):
        if node is None:
            continue
        entered = Node(Input, (index,), {}, packed_meta(node) or node.meta, node.line)
        new.append(entered)
        if packed_meta(node) is not None:
            entered = Node(torch.ops.aten._to_copy.default, (entered,), {"dtype": node.meta.dtype}, node.meta, node.line)
            new.append(entered)
        made.setdefault(node, entered)
    live = set(wanted)
    for node in reversed(tape):
        if node in live and node not in made:
            live.update(parents(node))
    for node in tape:
        if node in live and node not in made:
            args = map_nodes(node.args, made.__getitem__)
            kwargs = {name: map_nodes(value, made.__getitem__) for name, value in node.kwargs.items()}
            made[node] = node if node.op is Constant else Node(node.op, args, kwargs, node.meta, node.line)
            new.append(made[node])
    recorder = Recorder(env)
    recorder.tape = new
    epilogue = own_memory(recorder, Epilogue([("node", made[node]) for node in wanted], []))
    return build_graph(recorder.tape, [fake for _, fake in given], epilogue, original, env)


def put_right(node: Any, values: Sequence[torch.Tensor | None]) -> None:
    """Writes values into what a node of a real history keeps; None leaves it as it is."""
    for kept, value in zip(saved_tensors(node), values, strict=True):
        if value is not None:
            target = kept.data  # a version counter of its own: to autograd nothing was written
            for dim, stride in enumerate(target.stride()):
                if stride == 0 and target.size(dim) > 1:  # all elements along it are one
                    target, value = target.narrow(dim, 0, 1), value.narrow(dim, 0, 1)
            target.copy_(value)
