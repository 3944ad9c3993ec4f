// Numbers that lie in tensors of one element.
#pragma once

#include <Python.h>

namespace dyncomp::executor {

// host_number(tensor) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* host_number(PyObject* tensor);

}  // namespace dyncomp::executor
