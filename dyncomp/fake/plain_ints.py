"""Functions that take a plain int where a program may give a size.

    torch.linspace(0, 1, x.shape[0])   ->   the operation aten.linspace(0, 1, s0), as it is

torch's argument parser would ask for the number itself, which pins the size. The operation goes to the mode directly
instead; a shape rule tells its result, and the graph hands it the number of each call.
"""

from __future__ import annotations

from typing import Any

import torch

from dyncomp.shape.symbolic import is_symbolic

aten = torch.ops.aten
_FUNCTIONS: dict[Any, Any] = {
    torch.linspace: aten.linspace, torch.logspace: aten.logspace,
    torch.hann_window: aten.hann_window, torch.hamming_window: aten.hamming_window,
    torch.blackman_window: aten.blackman_window, torch.bartlett_window: aten.bartlett_window,
    torch.kaiser_window: aten.kaiser_window,
    torch.fft.fftfreq: aten.fft_fftfreq, torch.fft.rfftfreq: aten.fft_rfftfreq,
    torch.tril_indices: aten.tril_indices, torch.triu_indices: aten.triu_indices,
    torch.nn.functional.one_hot: aten.one_hot, torch.vander: aten.vander,
}  # fmt: skip
_FITS: dict[str, tuple[Any, ...]] = {
    "Tensor": (torch.Tensor,),
    "Scalar": (int, float, torch.SymInt, torch.SymFloat),
    "number": (int, float, torch.SymInt, torch.SymFloat),
    "int": (int, torch.SymInt),
    "float": (int, float),
    "bool": (bool,),
}


def operation(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], recorded: bool = False
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """(operation, args, kwargs) for a call with a symbolic number of one of these functions; None for all others.

    `recorded`: operations go into a graph, so that also those are meant which torch composes otherwise for tensors without data.
    """
    packet = _FUNCTIONS.get(fn) if type(fn).__hash__ is not None else None
    if packet is None or not (recorded and packet is aten.one_hot or any(map(is_symbolic, (*args, *kwargs.values())))):
        return None
    if kwargs.get("out") is not None or kwargs.get("requires_grad"):
        return None
    given = {name: value for name, value in kwargs.items() if name not in ("out", "requires_grad")}
    for name in packet.overloads():
        op = getattr(packet, name)
        if not any(argument.is_out for argument in op._schema.arguments):
            bound = _bind(op._schema.arguments, args, given)
            if bound is not None:
                return op, *bound
    return None


def _bind(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments as torch's parser hands them on, or None where they do not fit."""
    positional = [argument for argument in schema if not argument.kwarg_only]
    if len(args) > len(positional) or kwargs.keys() - {argument.name for argument in schema}:
        return None
    values = {argument.name: value for argument, value in zip(positional, args, strict=False)}
    if values.keys() & kwargs.keys():
        return None
    values.update(kwargs)
    if all(argument.name != "pin_memory" for argument in schema):
        options = {}
    else:
        options = {"device": torch.device("cpu"), "pin_memory": False}
    for argument in schema:
        value = values.get(argument.name)
        if argument.name not in values:
            if not argument.has_default_value():
                return None
        elif value is not None:
            fits = _FITS.get(str(argument.type))
            if fits is not None and (not isinstance(value, fits) or isinstance(value, bool) and bool not in fits):
                return None
            options[argument.name] = torch.device(value) if argument.name == "device" else value
    count = max((i + 1 for i, argument in enumerate(positional) if argument.name in options), default=0)
    names = [argument.name for argument in positional[:count]]
    defaults = {argument.name: argument.default_value for argument in positional}
    ordered = tuple([options[name] if name in options else defaults[name] for name in names])
    return ordered, {name: value for name, value in options.items() if name not in names}
