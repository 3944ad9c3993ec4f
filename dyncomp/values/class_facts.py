"""What CPython makes of a class: the raw attribute that its MRO gives, the C class behind its instances, its name in messages.

    class_lookup(torch.nn.Linear, "forward")      the function, as it stands in a class's `__dict__`
    solid_base(class D(dict))                     dict
"""

from __future__ import annotations

import collections
import functools
import types
from typing import Any

from dyncomp.values.base import ABSENT

HEAP_TYPE = 1 << 9
NOT_INSTANTIABLE = 1 << 7
MEMBER = types.MemberDescriptorType
GETSET = types.GetSetDescriptorType
C_METHODS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
TUPLE_GETTER = type(collections.namedtuple("_Probe", "x").x)  # type: ignore[attr-defined]

# The built-in classes whose subclasses can be followed.
CONTAINER_BASES = (dict, collections.OrderedDict, collections.defaultdict, list, tuple, set, frozenset)
# C classes whose instances are a `__dict__` and nothing else.
BARE_BASES = (object, types.SimpleNamespace)


def class_lookup(cls: type, name: str) -> Any:
    """The raw attribute that the MRO gives, or ABSENT."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return ABSENT


def type_name(cls: type) -> str:
    """The name that CPython's messages give: with the module for a class of C, but for the built-in ones."""
    plain = cls.__flags__ & HEAP_TYPE or cls.__module__ == "builtins"
    return cls.__name__ if plain else f"{cls.__module__}.{cls.__name__}"


@functools.lru_cache(maxsize=4096)
def solid_base(cls: type) -> type | None:
    """The C class that gives instances their layout; None for objects that C code may treat in its own
    way."""
    for base in cls.__mro__:
        if base in CONTAINER_BASES or base in BARE_BASES:
            return base
        new = base.__dict__.get("__new__")
        if new is not None and not isinstance(new, (staticmethod, types.FunctionType)):
            return base
        if not base.__flags__ & HEAP_TYPE or base.__flags__ & NOT_INSTANTIABLE:
            return None
    return None


def is_plain(cls: type) -> bool:
    """Instances are a `__dict__`, slots and perhaps one of the containers."""
    base = solid_base(cls)
    return base in BARE_BASES or base in CONTAINER_BASES


def is_data_descriptor(raw: Any) -> bool:
    cls = type(raw)
    return hasattr(cls, "__set__") or hasattr(cls, "__delete__")


def structseq_fields(cls: Any) -> list[str]:
    """Names of the fields of a C struct sequence, such as torch.return_types.max."""
    return list(cls.__match_args__)


def is_structseq(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")
