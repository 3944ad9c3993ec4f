// The Python type `Plan`: a program that is called by vectorcall.
#pragma once

#include <Python.h>

namespace dyncomp::executor {

// A new reference to the type, or nullptr with an exception set.
PyObject* make_plan_type();

}  // namespace dyncomp::executor
