// Python exceptions out of a running plan.
#pragma once

#include <Python.h>

#include <string>

namespace dyncomp::executor {

// Throws what the plan's caller sees as a Python exception of this type, with or without the interpreter's lock.
[[noreturn]] void raise_python(PyObject* type, const std::string& message);

}  // namespace dyncomp::executor
