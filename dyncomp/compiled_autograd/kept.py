"""What nodes of autograd keep, split into what makes a structure and what is handed to the compiled function.

                                 the structure                   handed over
    MulBackward0 of x * 2        other: the number 2             ()
    SumBackward1                 dim (1,), keepdim False, ...    ()
    ExpBackward0                 result: a tensor                (result,)

Numbers, strings and tuples that a node keeps become part of its formula, so they belong to the structure. A node may keep more
than it shows in Python; torch's header of these nodes tells. What is hidden must follow from what is known otherwise: the dtype
and the sizes of an argument are those of its gradient.
"""

from __future__ import annotations

import functools
import os
import re
import sys

import torch

Reader = tuple[tuple[str, ...], tuple[str, ...], bool]

# Fields of nodes that say nothing of the formula, and types of hidden fields that the gradients' own metadata gives.
_BOOKKEEPING = re.compile(r".*_released_$|.*_size_$|retain_variables$")
_OWN_METADATA = frozenset({
    "at::ScalarType", "::std::vector<at::ScalarType>", "std::vector<at::ScalarType>", "at::TensorOptions", "at::Layout",
    "torch::autograd::generated::TypeAndSize",
})  # fmt: skip
# Sizes of all arguments, in order: those of one argument that has no gradient follow from the rest.
_SIZES_OF_ALL = frozenset({"::std::vector<::std::vector<c10::SymInt>>", "std::vector<std::vector<c10::SymInt>>"})
# What nodes hide in other types, and `_exec.backward_kept` reads all the same.
_READ_NATIVELY = {"AsStridedBackward0": frozenset({"at::TensorGeometry"})}
# Nodes of torch that are written by hand and keep nothing but the options of the tensor that the gradient is for.
_BY_HAND = frozenset({"CopyBackwards"})


class Refused(Exception):
    """This backward is left to eager's engine; the text says why."""


class _Readers(dict[type, Reader | str]):
    """How a node of a class is read, as `_exec.backward_kept` takes it, or why none is."""

    def __missing__(self, cls: type) -> Reader | str:
        found = self[cls] = _reader(cls)
        return found


READERS = _Readers()


def _reader(cls: type) -> Reader | str:
    shown = sorted(name.removeprefix("_saved_") for name in dir(cls) if name.startswith("_saved_"))
    hidden = _hidden_types(cls.__name__, shown)
    if hidden is None:
        return f"node {cls.__name__}"
    if unknown := hidden - _OWN_METADATA - _SIZES_OF_ALL - _READ_NATIVELY.get(cls.__name__, frozenset()):
        return f"node {cls.__name__} keeps {sorted(unknown)[0]}"
    saved = [name for name in shown if hasattr(cls, f"_raw_saved_{name}")]
    values = tuple([sys.intern(f"_saved_{name}") for name in shown if name not in saved])
    return values, tuple([sys.intern(f"_raw_saved_{name}") for name in saved]), bool(hidden & _SIZES_OF_ALL)


def _hidden_types(name: str, shown: list[str]) -> set[str] | None:
    """C++ types of what a node keeps and does not show; None: nobody knows what it keeps."""
    if name in _BY_HAND:
        return set()
    fields = _fields().get(name)
    if fields is None:
        return None
    visible = {*shown, *(f"{one}_" for one in shown)}
    return {kind for kind, field in fields if field not in visible and not _BOOKKEEPING.match(field)}


@functools.lru_cache(1)
def _fields() -> dict[str, list[tuple[str, str]]]:
    """(C++ type, name) of the fields of each node that torch generates, from the header that torch comes with."""
    path = os.path.join(torch.__path__[0], "include/torch/csrc/autograd/generated/Functions.h")
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        return {}
    found: dict[str, list[tuple[str, str]]] = {}
    for match in re.finditer(r"struct TORCH_API (\w+) : public \w+ \{(.*?)\n\};", text, re.DOTALL):
        body = re.sub(r"\{[^{}]*\}", "", re.sub(r"\{[^{}]*\}", "", match.group(2)))
        fields = re.findall(r"^  ((?:::)?[\w:<>, ]+?) (\w+)(?: = \w+)?;$", body, re.MULTILINE)
        found[match.group(1)] = [(kind, field) for kind, field in fields if kind not in ("using", "return")]
    return found
