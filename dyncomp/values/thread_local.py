"""`threading.local` objects: instances whose attributes lie in a dictionary of the calling thread.

    state.depth += 1        a read and a write of vars(state), which the guard tree asks for in each call
"""

from __future__ import annotations

import threading
from typing import Any

from dyncomp._frame import _core
from dyncomp.guards.source import Call, Source
from dyncomp.values.base import Tracer, Value
from dyncomp.values.instance import InstanceValue
from dyncomp.values.mapping import DictValue
from dyncomp.values.registry import wrap_if

# In a thread that has not used the object yet this makes the dictionary, by the `__init__` of the user's class, as any use does.
_OWN = _core.without_hook(vars)


class ThreadLocalValue(InstanceValue):
    def __init__(self, tx: Tracer, obj: Any, source: Source):
        super().__init__(type(obj), source)
        self.outside, self.has_dict = obj, True
        namespace = tx.wrap(vars(obj), Call(source, _OWN))
        assert isinstance(namespace, DictValue)
        self.namespace = namespace  # no owner: object.__setattr__ refuses such objects, so the dictionary itself is written

    def generic_getattr(self, tx: Tracer, name: str) -> Value:
        if self.cls is threading.local and self.find_attribute(tx, name) is None:
            tx.raise_(AttributeError, f"'_thread._local' object has no attribute {name!r}")
        return super().generic_getattr(tx, name)


@wrap_if(lambda obj: isinstance(obj, threading.local), priority=60)
def wrap_thread_local(tx: Tracer, obj: Any, source: Source) -> Value:
    return ThreadLocalValue(tx, obj, source)
