// The autograd graph below some results, as eager's engine would run it.
#pragma once

#include <Python.h>

namespace dyncomp::executor {

// backward_walk(roots, inputs, details, capture) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* walk_history(PyObject* roots, PyObject* inputs, bool details, bool capture);

// backward_order(roots) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* nodes_in_order(PyObject* roots);

// written_part(node) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* written_part_of(PyObject* node);

// backward_call(steps, index, given, run) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* call_history(PyObject* steps, Py_ssize_t index, PyObject* given, bool run);

// backward_kept(steps, objects, readers) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* kept_by_history(PyObject* steps, PyObject* objects, PyObject* readers);

// Frees what the nodes of a walk keep, as the engine does after each of them; false with an exception set.
bool release_history(PyObject* steps);
// release_node(grad_fn) of `_exec`: frees what one node keeps; a new reference to None, or nullptr.
PyObject* release_node(PyObject* node);
// lead_on(tensor, other) of `_exec`; a new reference to None, or nullptr with an exception set. See exec.pyx.
PyObject* lead_on(PyObject* tensor, PyObject* other);
// set_history(tensor, other) of `_exec`; a new reference to None, or nullptr with an exception set. See exec.pyx.
PyObject* set_history(PyObject* tensor, PyObject* other);
// Adds a gradient of node `index` to the `grad` of its result number `place`, if that retains it; a new reference to None, or nullptr.
PyObject* retain_history(PyObject* steps, Py_ssize_t index, Py_ssize_t place, PyObject* gradient);

}  // namespace dyncomp::executor
