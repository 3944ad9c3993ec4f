// Weights as autocast's cache has them: eager casts a weight once in a block and every operation of the block reads that cast.
#pragma once

#include <Python.h>

namespace dyncomp::executor {

// A new reference to what autocast gives an operation that computes in `dtype` for `tensor`, as it is set in this thread: the cast that
// its cache has, or a new one; or nullptr with an exception set.
PyObject* cached_cast(PyObject* tensor, PyObject* dtype);

// A new reference to the Python type `CastingCall`, or nullptr with an exception set.
PyObject* make_casting_call_type();

}  // namespace dyncomp::executor
