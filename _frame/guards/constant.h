// Equality of constants as compiled code needs it: same exact type and same value, to the bit.
#pragma once
#include <Python.h>

namespace dyncomp {

// Whether `same_constant` can compare this object without running Python code.
bool is_constant(PyObject* object);
// floats and complex by bits (so -0.0 is not 0.0 and nan equals itself); containers element by element.
bool same_constant(PyObject* a, PyObject* b);

}  // namespace dyncomp
