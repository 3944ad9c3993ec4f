"""The native executor: plans, the kernels they call, and the pool their memory comes from."""

import os

from cpython.object cimport PyTypeObject
from libcpp.string cimport string

cdef extern from "executor/fields.h" namespace "dyncomp::executor":
    void set_slot_type(PyTypeObject*)

cdef extern from "executor/plan_object.h" namespace "dyncomp::executor":
    object make_plan_type()

cdef extern from "executor/overlap.h" namespace "dyncomp::executor":
    int c_shares_memory "dyncomp::executor::shares_memory"(object inputs, object written) except -1

cdef extern from "executor/training.h" namespace "dyncomp::executor":
    object make_training_plan_type()

cdef extern from "executor/history.h" namespace "dyncomp::executor":
    object walk_history(object roots, object inputs, bint details, bint capture)
    object nodes_in_order(object roots)
    object written_part_of(object node)
    object call_history(object steps, Py_ssize_t index, object given, bint run)
    object kept_by_history(object steps, object objects, object readers)
    bint release_history(object steps) except False
    object c_release_node "dyncomp::executor::release_node"(object node)
    object c_lead_on "dyncomp::executor::lead_on"(object tensor, object other)
    object c_set_history "dyncomp::executor::set_history"(object tensor, object other)
    object retain_history(object steps, Py_ssize_t index, Py_ssize_t place, object gradient)

cdef extern from "executor/casts.h" namespace "dyncomp::executor":
    object make_casting_call_type()
    object c_cached_cast "dyncomp::executor::cached_cast"(object tensor, object dtype)

cdef extern from "executor/leaf_hooks.h" namespace "dyncomp::executor":
    object c_accumulation_has_hooks "dyncomp::executor::accumulation_has_hooks"(object tensor)

cdef extern from "executor/host_number.h" namespace "dyncomp::executor":
    object c_host_number "dyncomp::executor::host_number"(object tensor)

cdef extern from "executor/pool.h" namespace "dyncomp::executor":
    ctypedef struct CPoolStats "dyncomp::executor::PoolStats":
        unsigned long long live_bytes
        unsigned long long kept_bytes
        unsigned long long limit
        unsigned long long hits
        unsigned long long misses
        unsigned long long peak_bytes
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
    """Bytes live and kept for reuse, the most bytes kept, how many blocks were reused or fetched, and the most bytes live at once."""
    cdef CPoolStats s = c_pool_stats()
    return {"live_bytes": s.live_bytes, "kept_bytes": s.kept_bytes, "limit": s.limit, "hits": s.hits, "misses": s.misses,
            "peak_bytes": s.peak_bytes}


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


def shares_memory(inputs, written):
    """True if an input at an index in `written` shares memory with another input; numbers among the inputs share nothing.

    Compared are the ranges between first and last element: two halves of one tensor are separate, x[::2] and x[1::2] are not.
    """
    return bool(c_shares_memory(tuple(inputs), tuple(written)))


def backward_walk(tuple roots not None, tuple inputs not None, bint details=False, bint capture=False):
    """The autograd graph below tensors, in the order in which eager's engine runs it; `inputs`: leaves that are wanted, () for all.
    With `capture` they are any tensors with a history, whose gradients are asked for (`torch.autograd.grad`).

    (steps, structure, sizes, kinds, objects, hooks, details), or a str: why this graph is left to eager's engine. `kinds`: a letter
    a node. `objects`: by node the leaf that is accumulated into ("a"), (node, prepare, saved values) of compiled code ("c"), a
    Python function's context ("p"), another node ("g"), None of one whose gradients are asked for and that does not run ("x"). `hooks`: each dict of hooks after a tuple of what is in it.
    `details`: None or (roots, nodes, captures): (node, input) of each root; of each captured tensor the same; by node ((dtype or None, sizes) of each input, (node or -1,
    input) of each result, (kind, input) of each tuple of hooks). Graphs of equal structure and sizes differ in what their nodes
    keep at most.
    """
    return walk_history(roots, inputs, details, capture)


def backward_order(tuple roots not None):
    """The nodes below tensors that have a history, in the order in which eager's engine runs them."""
    return nodes_in_order(roots)


def written_part(node not None):
    """Of a write through a view (`CopySlices`) the node of what was written; None of other nodes."""
    return written_part_of(node)


def backward_call(steps, Py_ssize_t index, tuple given not None, bint run=True):
    """The results of one node of a walk for gradients (tensors or None), checked, cast and summed as the engine does before it hands
    them on. With run=False `given` are the results already.
    """
    return call_history(steps, index, given, run)


def backward_kept(steps, list objects not None, readers):
    """(bytes, by node a list of tensors, numbers, or the context of a Python function): what makes the formulas of a walk's nodes, and what is handed to them.

    `readers[type of a node]`: (names of the values that it keeps, names of its saved variables, whether sizes of arguments without
    a gradient are hidden), or a str: why this graph is left to eager's engine, which is what is returned then. Raises what eager
    raises where something kept is gone, or was written in place since.
    """
    return kept_by_history(steps, objects, readers)


def backward_release(steps):
    """Lets the nodes of a walk free what they keep, as after a backward without retain_graph."""
    release_history(steps)


def release_node(node):
    """Lets a node of torch's own (a `grad_fn`) free what it keeps, as after a backward."""
    c_release_node(node)


def lead_on(tensor, other):
    """What comes to the node of `tensor`, which has one result, goes on to that of `other`, a tensor like the one it led to; None: nowhere."""
    c_lead_on(tensor, other)


def set_history(tensor, other):
    """Gives `tensor` the place in autograd's graph of `other`; that of a view only holds until its memory is written."""
    c_set_history(tensor, other)


def backward_retain(steps, index, place, gradient):
    """Adds a gradient to the `grad` of result number `place` of node `index` of a walk, if that result retains it."""
    retain_history(steps, index, place, gradient)


def host_number(tensor):
    """The number in a real tensor of one element in the memory of the CPU that no other tensor shares; None of any other.

    An int of a tensor of integers or bools, a float of a floating one. Without effects: guards read numbers by it.
    """
    return c_host_number(tensor)


def accumulation_has_hooks(tensor):
    """True if hooks are registered on the node that accumulates gradients into this leaf, in Python or in C++. Without effects."""
    return c_accumulation_has_hooks(tensor)


def cached_cast(tensor, dtype):
    """What autocast gives an operation that computes in `dtype`: the cast of the tensor that its cache has, or a new one."""
    return c_cached_cast(tensor, dtype)


set_slot_type(<PyTypeObject*>Slot)
Plan = make_plan_type()
TrainingPlan = make_training_plan_type()
CastingCall = make_casting_call_type()
