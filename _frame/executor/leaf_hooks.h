// Hooks that a backward runs at a leaf.
#pragma once

#include <Python.h>

namespace dyncomp::executor {

// accumulation_has_hooks(tensor) of `_exec`; a new reference, or nullptr with an exception set. See exec.pyx.
PyObject* accumulation_has_hooks(PyObject* tensor);

}  // namespace dyncomp::executor
