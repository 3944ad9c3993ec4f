# distutils: language = c++
"""Face of the native runtime: frame hook, caches, guards, dispatch. The work is in the .cpp files of the folders.

Types: Entry, GuardTree, Cache, Dispatcher, Region, without_hook. See docs/contracts.md, sections 1 and 2.
"""

import collections
import os
import types

from cpython.object cimport PyObject, PyTypeObject

cdef extern from "Python.h":
    ctypedef struct PyCodeObject:
        pass

cdef extern from "core_api.h" namespace "dyncomp":
    int core_init() except -1
    PyTypeObject EntryType, GuardTreeType, CacheType, DispatcherType, RegionType, WithoutHookType
    PyObject* c_absent "dyncomp::absent"
    PyObject* c_eager_once "dyncomp::serve_eager_once"
    PyObject* c_freeze "dyncomp::serve_freeze"
    object serve_set_callback(PyObject*)
    object serve_set_report(PyObject*)
    void serve_set_disabled(bint)
    bint serve_disabled()
    bint cell_skip(PyCodeObject*) except False
    void caches_reset()
    void caches_after_fork()
    bint evaluator_installed()
    object state_now()
    object tensor_describe(object)

cdef extern from *:
    """
    #ifndef DYNCOMP_TORCH_VERSION
    #define DYNCOMP_TORCH_VERSION ""
    #endif
    static const char *dyncomp_torch_version = DYNCOMP_TORCH_VERSION;
    static const int dyncomp_with_torch = DYNCOMP_TORCH;
    """
    const char* dyncomp_torch_version
    int dyncomp_with_torch

core_init()

WITH_TORCH = bool(dyncomp_with_torch)
TORCH_VERSION = dyncomp_torch_version.decode()  # the torch that this file was built for
Entry = <object>&EntryType
GuardTree = <object>&GuardTreeType
Cache = <object>&CacheType
Dispatcher = <object>&DispatcherType
Region = <object>&RegionType
without_hook = <object>&WithoutHookType
ABSENT = <object>c_absent

# What a compile callback returns besides an Entry and None (skip this code object under this owner from now on):
EAGER_ONCE = <object>c_eager_once  # run this call as plain Python; the next miss asks again
FREEZE = <object>c_freeze  # keep the entries; no miss asks again

TensorSpec = collections.namedtuple(
    "TensorSpec", ["cls", "dtype", "device", "requires_grad", "dispatch_keys", "sizes", "strides"], module=__name__
)


def _after_fork_in_child():
    """The threads that were compiling are not in the child."""
    caches_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def set_callback(callback):
    """callback(func, args, owner, cache) -> Entry, None, EAGER_ONCE or FREEZE. None removes it. Returns the one before."""
    return serve_set_callback(<PyObject*>callback if callback is not None else NULL)


def set_report(callback):
    """callback(kind, detail): told of internal faults that a call survived. None removes it. Returns the one before."""
    return serve_set_report(<PyObject*>callback if callback is not None else NULL)


def set_disabled(bint disabled):
    """While true every call, in all threads, runs as plain Python. Returns what it was."""
    was = serve_disabled()
    serve_set_disabled(disabled)
    return was


def skip(code not None):
    """Never compiles this code object, under any owner; what it calls still is. `reset` does not undo it."""
    if not isinstance(code, types.CodeType):
        raise TypeError(f"expected a code object, got {code!r}")
    cell_skip(<PyCodeObject*>code)


def reset():
    """Forgets all entries and skip marks. Calls in flight finish in what they are running."""
    caches_reset()


def hook_installed():
    """Whether the interpreter calls our frame evaluator now."""
    return evaluator_installed()


def global_state():
    """The state that GuardTree compares, as plain (name, value) pairs."""
    return state_now()


def tensor_spec(tensor):
    """Payload of a `tensor` check. `_replace(sizes=...)` or `strides=...` with None entries opens dimensions."""
    return TensorSpec._make(tensor_describe(tensor))
