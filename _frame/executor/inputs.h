// What comes into a plan: tensors, and numbers of a kind that the plan's data names.
#pragma once

#include <Python.h>

#include <cstdint>
#include <vector>

#include "executor/program.h"

namespace dyncomp::executor {

// From `inputs=`: a count of tensors, or one of "tensor", "int", "bool", "float" an input. Throws BuildError.
std::vector<NumberType> read_inputs(PyObject* inputs);
// "a tensor", "an int", ...
const char* kind_text(NumberType kind);
// Whether the object is an input of this kind; subclasses are.
bool fits(NumberType kind, PyObject* object);
// The 64 bits of a number that fits. False with an OverflowError for an int beyond them.
bool number_bits(NumberType kind, PyObject* object, int64_t* bits);
// A number of a call, and its place among the inputs or outputs.
struct PlacedNumber {
  int place;
  NumberType kind;
  int64_t bits;
};
// The number that a Python object is; kNone for anything else. Throws python_error for an int beyond 64 bits.
PlacedNumber number_of(int place, PyObject* object);
// A new reference to the number, as Python has it.
PyObject* make_number(NumberType kind, int64_t bits);

}  // namespace dyncomp::executor
