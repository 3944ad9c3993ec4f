// Unique named values of the Python face: ABSENT, EAGER_ONCE, FREEZE.
#pragma once
#include <Python.h>

namespace dyncomp {

extern PyTypeObject SentinelType;
// A new reference; `name` must be a literal.
PyObject* sentinel_new(const char* name);

}  // namespace dyncomp
