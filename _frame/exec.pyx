"""The native executor: plans, the kernels they call, and the pool their memory comes from."""

import os

from cpython.object cimport PyTypeObject
from libcpp.string cimport string

cdef extern from "executor/fields.h" namespace "dyncomp::executor":
    void set_slot_type(PyTypeObject*)

cdef extern from "executor/plan_object.h" namespace "dyncomp::executor":
    object make_plan_type()

cdef extern from "executor/training.h" namespace "dyncomp::executor":
    object make_training_plan_type()

cdef extern from "executor/pool.h" namespace "dyncomp::executor":
    ctypedef struct CPoolStats "dyncomp::executor::PoolStats":
        unsigned long long live_bytes
        unsigned long long kept_bytes
        unsigned long long limit
        unsigned long long hits
        unsigned long long misses
    CPoolStats c_pool_stats "dyncomp::executor::pool_stats"() noexcept nogil
    unsigned long long pool_trim() noexcept nogil
    void pool_set_limit(unsigned long long) noexcept nogil

cdef extern from "executor/library.h" namespace "dyncomp::executor":
    void* open_library(const string&) except +OSError
    void close_library(void*) noexcept
    unsigned long long find_symbol(void*, const string&) noexcept


cdef class Slot:
    """Stands for the tensor in a slot, among the arguments of an `op` instruction."""

    cdef readonly Py_ssize_t index

    def __init__(self, Py_ssize_t index):
        if index < 0:
            raise ValueError(f"negative slot {index}")
        self.index = index

    def __eq__(self, other):
        return type(other) is Slot and (<Slot>other).index == self.index

    def __hash__(self):
        return hash((Slot, self.index))

    def __repr__(self):
        return f"Slot({self.index})"

    def __reduce__(self):
        return Slot, (self.index,)


cdef class Library:
    """A loaded shared object with kernels. A plan made with `libraries=[...]` keeps it loaded."""

    cdef void* handle
    cdef readonly str path

    def __cinit__(self, path):
        self.path = os.fspath(path)
        self.handle = open_library(os.fsencode(self.path))

    def __dealloc__(self):
        if self.handle is not NULL:
            close_library(self.handle)

    def address(self, str symbol):
        """Where a kernel starts, for `Plan(kernels=[(address, name)])`."""
        cdef unsigned long long address = find_symbol(self.handle, symbol.encode())
        if address == 0:
            raise KeyError(f"{self.path} has no symbol {symbol!r}")
        return address

    def __repr__(self):
        return f"Library({self.path!r})"


def load_kernels(path):
    """Loads a shared object; OSError with the path and the reason if it is missing or damaged."""
    return Library(path)


def pool_stats():
    """Bytes live and kept for reuse, the most bytes kept, and how many blocks were reused or fetched."""
    cdef CPoolStats s = c_pool_stats()
    return {"live_bytes": s.live_bytes, "kept_bytes": s.kept_bytes, "limit": s.limit, "hits": s.hits, "misses": s.misses}


def set_pool_limit(unsigned long long limit):
    """Sets the most bytes kept for reuse; what exceeds it is returned to the system, oldest first."""
    with nogil:
        pool_set_limit(limit)


def trim():
    """Returns all memory kept for reuse to the system; the number of bytes."""
    cdef unsigned long long freed
    with nogil:
        freed = pool_trim()
    return freed


set_slot_type(<PyTypeObject*>Slot)
Plan = make_plan_type()
TrainingPlan = make_training_plan_type()
