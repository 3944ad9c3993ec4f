// Python names: `_core.Region`, `_core.without_hook`.
#pragma once
#include <Python.h>

namespace dyncomp {
extern PyTypeObject RegionType;
extern PyTypeObject WithoutHookType;
// Whether `callable` is a `without_hook` over a Python function, which takes references to its arguments before any code runs.
bool wraps_function(PyObject* callable);
}  // namespace dyncomp
