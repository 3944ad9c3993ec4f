#include "executor/inputs.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/fields.h"
#include "numbers.h"

namespace dyncomp::executor {

namespace {

constexpr int64_t kMaxInputs = int64_t{1} << 24;

struct Row {
  NumberType kind;
  const char* name;
  const char* text;
};

constexpr Row kKinds[] = {
    {NumberType::kNone, "tensor", "a tensor"},
    {NumberType::kInt, "int", "an int"},
    {NumberType::kTruth, "bool", "a bool"},
    {NumberType::kFloat, "float", "a float"},
};

NumberType kind_named(const std::string& name) {
  std::string known;
  for (const Row& row : kKinds) {
    if (name == row.name) {
      return row.kind;
    }
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  throw BuildError("no kind of input '" + name + "'; known: " + known);
}

}  // namespace

std::vector<NumberType> read_inputs(PyObject* inputs) {
  if (PyLong_Check(inputs)) {
    int64_t count = to_int64(inputs, "inputs");
    if (count < 0 || count > kMaxInputs) {
      throw BuildError("inputs=" + std::to_string(count) + ": a plan has 0 to " + std::to_string(kMaxInputs) + " inputs");
    }
    return std::vector<NumberType>(count, NumberType::kNone);
  }
  std::vector<NumberType> kinds;
  for (PyObject* item : items(inputs, "inputs")) {
    kinds.push_back(kind_named(to_text(item, "the kind of an input")));
  }
  return kinds;
}

const char* kind_text(NumberType kind) {
  for (const Row& row : kKinds) {
    if (row.kind == kind) {
      return row.text;
    }
  }
  return "?";
}

bool fits(NumberType kind, PyObject* object) {
  switch (kind) {
    case NumberType::kNone:
      return THPVariable_Check(object);
    case NumberType::kInt:
      return PyLong_Check(object) && !PyBool_Check(object);
    case NumberType::kTruth:
      return PyBool_Check(object);
    case NumberType::kFloat:
      return PyFloat_Check(object);
  }
  return false;
}

bool number_bits(NumberType kind, PyObject* object, int64_t* bits) {
  switch (kind) {
    case NumberType::kFloat:
      *bits = numbers::bits(PyFloat_AS_DOUBLE(object));
      return true;
    case NumberType::kTruth:
      *bits = object == Py_True;
      return true;
    default:
      *bits = PyLong_AsLongLong(object);
      return *bits != -1 || PyErr_Occurred() == nullptr;
  }
}

PlacedNumber number_of(int place, PyObject* object) {
  for (NumberType kind : {NumberType::kInt, NumberType::kFloat, NumberType::kTruth}) {
    int64_t bits = 0;
    if (fits(kind, object)) {
      if (!number_bits(kind, object, &bits)) {
        throw python_error();
      }
      return {place, kind, bits};
    }
  }
  return {place, NumberType::kNone, 0};
}

PyObject* make_number(NumberType kind, int64_t bits) {
  switch (kind) {
    case NumberType::kFloat:
      return PyFloat_FromDouble(numbers::real(bits));
    case NumberType::kTruth:
      return PyBool_FromLong(bits != 0);
    default:
      return PyLong_FromLongLong(bits);
  }
}

}  // namespace dyncomp::executor
