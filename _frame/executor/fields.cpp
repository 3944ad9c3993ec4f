#include "executor/fields.h"

#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>

#include "numbers.h"

namespace dyncomp::executor {

namespace {

constexpr int64_t kMaxRegisters = int64_t{1} << 20;

PyTypeObject* slot_type = nullptr;

std::string type_name(PyObject* object) { return Py_TYPE(object)->tp_name; }

[[noreturn]] void wrong_type(const char* what, const char* expected, PyObject* got) {
  throw BuildError(std::string(what) + " must be " + expected + ", not " + type_name(got));
}

}  // namespace

SlotState& Builder::readable(int64_t slot) {
  if (slot < 0 || slot >= static_cast<int64_t>(slots.size())) {
    throw BuildError("no slot " + std::to_string(slot) + " (the plan has " + std::to_string(slots.size()) + ")");
  }
  if (slots[slot].number) {
    throw BuildError("slot " + std::to_string(slot) + " is an input that is a number, no tensor");
  }
  if (!slots[slot].live) {
    throw BuildError("slot " + std::to_string(slot) + " is read before it is written, or after it was freed");
  }
  return slots[slot];
}

SlotState& Builder::definable(int64_t slot) {
  if (slot < 0 || slot >= static_cast<int64_t>(slots.size())) {
    throw BuildError("no slot " + std::to_string(slot) + " (the plan has " + std::to_string(slots.size()) + ")");
  }
  if (slot < program.inputs || slots[slot].constant) {
    throw BuildError("slot " + std::to_string(slot) + " is an input or a constant and cannot be written anew");
  }
  if (slots[slot].live) {
    throw BuildError("slot " + std::to_string(slot) + " is still in use: free it first");
  }
  return slots[slot];
}

int Builder::define(int64_t slot) {
  SlotState& state = definable(slot);
  state = SlotState{.live = true, .generation = state.generation + 1, .escapes = state.escapes};
  return static_cast<int>(slot);
}

int Builder::define_register(int64_t reg, NumberType type) {
  if (reg < 0 || reg >= kMaxRegisters) {
    throw BuildError("no register " + std::to_string(reg));
  }
  if (reg >= static_cast<int64_t>(registers.size())) {
    registers.resize(reg + 1);
  }
  registers[reg] = type;
  return static_cast<int>(reg);
}

Number Builder::register_named(PyObject* name) const {
  int64_t reg = to_int64(PyTuple_GET_ITEM(name, 1), "a register");
  NumberType type = reg < 0 || reg >= static_cast<int64_t>(registers.size()) ? NumberType::kNone : registers[reg];
  if (type == NumberType::kNone) {
    throw BuildError("register " + std::to_string(reg) + " is read before it is written");
  }
  if (is_float_register(name) != (type == NumberType::kFloat)) {
    throw BuildError("register " + std::to_string(reg) + (type == NumberType::kFloat ? " holds a float: (\"f\", r) names it"
                                                                                       : " holds an int: (\"s\", r) names it"));
  }
  return {{0, static_cast<int>(reg)}, type};
}

c10::Scalar Number::get(const Frame& frame) const {
  int64_t value = bits.get(frame);
  switch (type) {
    case NumberType::kTruth:
      return c10::Scalar(value != 0);
    case NumberType::kFloat:
      return c10::Scalar(numbers::real(value));
    default:
      return c10::Scalar(value);
  }
}

void set_slot_type(PyTypeObject* type) { slot_type = type; }

int64_t slot_index(PyObject* object) {
  if (Py_TYPE(object) != slot_type) {
    return -1;
  }
  PyObject* index = PyObject_GetAttrString(object, "index");
  if (index == nullptr) {
    PyErr_Clear();
    throw BuildError("a Slot without an index");
  }
  int64_t value = PyLong_AsLongLong(index);  // the class holds a C integer
  Py_DECREF(index);
  return value;
}

int64_t to_int64(PyObject* object, const char* what) {
  if (!PyLong_Check(object) || PyBool_Check(object)) {
    wrong_type(what, "an int", object);
  }
  int overflow = 0;
  int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (overflow != 0) {
    throw BuildError(std::string(what) + " does not fit in 64 bits");
  }
  return value;
}

std::string to_text(PyObject* object, const char* what) {
  if (!PyUnicode_Check(object)) {
    wrong_type(what, "a str", object);
  }
  const char* utf8 = PyUnicode_AsUTF8(object);
  if (utf8 == nullptr) {
    PyErr_Clear();
    throw BuildError(std::string(what) + " must be text that UTF-8 can hold");
  }
  return utf8;
}

namespace {

bool is_pair_of(const char* letter, PyObject* object) {
  return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(object, 0)) &&
         PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(object, 0), letter) == 0 && PyLong_Check(PyTuple_GET_ITEM(object, 1));
}

}  // namespace

bool is_float_register(PyObject* object) { return is_pair_of("f", object); }

bool is_register(PyObject* object) { return is_pair_of("s", object) || is_float_register(object); }

Int to_int(Builder& builder, PyObject* object, const char* what) {
  if (is_float_register(object)) {
    throw BuildError(std::string(what) + " must be an int, not the float in a register");
  }
  return is_register(object) ? builder.register_named(object).bits : Int{to_int64(object, what), -1};
}

Number to_number(Builder& builder, PyObject* object, const char* what) {
  if (is_register(object)) {
    return builder.register_named(object);
  }
  if (PyBool_Check(object)) {
    return {{object == Py_True, -1}, NumberType::kTruth};
  }
  if (PyFloat_Check(object)) {
    return {{numbers::bits(PyFloat_AS_DOUBLE(object)), -1}, NumberType::kFloat};
  }
  return {{to_int64(object, what), -1}, NumberType::kInt};
}

at::ScalarType to_dtype(PyObject* object) {
  if (!THPDtype_Check(object)) {
    wrong_type("dtype", "a torch.dtype", object);
  }
  return reinterpret_cast<THPDtype*>(object)->scalar_type;
}

c10::Device to_device(PyObject* object) {
  if (THPDevice_Check(object)) {
    return reinterpret_cast<THPDevice*>(object)->device;
  }
  try {
    return c10::Device(to_text(object, "device"));
  } catch (const c10::Error& e) {
    throw BuildError(e.what_without_backtrace());
  }
}

std::vector<PyObject*> items(PyObject* object, const char* what) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) {
    wrong_type(what, "a tuple or list", object);
  }
  PyObject** first = PySequence_Fast_ITEMS(object);
  return {first, first + PySequence_Fast_GET_SIZE(object)};
}

Fields::Fields(Builder& b, PyObject* instruction, std::size_t count) : builder(b), fields_(items(instruction, "an instruction")) {
  if (fields_.size() != count + 1) {
    throw BuildError("takes " + std::to_string(count) + " fields after its name, got " + std::to_string(fields_.size() - 1));
  }
}

PyObject* Fields::object() { return fields_[next_++]; }

int Fields::read(const char* what) {
  int64_t slot = to_int64(object(), what);
  builder.readable(slot);
  return static_cast<int>(slot);
}

int Fields::define(const char* what) {
  return builder.define(to_int64(object(), what));
}

std::vector<int> Fields::read_many(const char* what) {
  std::vector<int> slots;
  for (PyObject* item : items(object(), what)) {
    int64_t slot = to_int64(item, what);
    builder.readable(slot);
    slots.push_back(static_cast<int>(slot));
  }
  return slots;
}

int64_t Fields::integer(const char* what) { return to_int64(object(), what); }

Int Fields::number(const char* what) { return to_int(builder, object(), what); }

Ints Fields::ints(const char* what) {
  std::vector<Int> values;
  for (PyObject* item : items(object(), what)) {
    values.push_back(to_int(builder, item, what));
  }
  return Ints(values);
}

at::ScalarType Fields::dtype() { return to_dtype(object()); }

c10::Device Fields::device() { return to_device(object()); }

c10::Scalar to_scalar(PyObject* object, const char* what) {
  if (PyBool_Check(object)) {
    return c10::Scalar(object == Py_True);
  }
  if (PyLong_Check(object)) {
    return c10::Scalar(to_int64(object, what));
  }
  if (PyFloat_Check(object)) {
    return c10::Scalar(PyFloat_AS_DOUBLE(object));
  }
  if (PyComplex_Check(object)) {
    return c10::Scalar(c10::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object)));
  }
  wrong_type(what, "a number", object);
}

Ints Fields::words(const char* what) {
  std::vector<Int> values;
  for (PyObject* item : items(object(), what)) {
    values.push_back(is_float_register(item) || PyFloat_Check(item) ? to_number(builder, item, what).bits : to_int(builder, item, what));
  }
  return Ints(values);
}

std::string Fields::text(const char* what) { return to_text(object(), what); }

std::size_t Fields::index(std::size_t count, const char* what) {
  int64_t value = integer(what);
  if (value < 0 || value >= static_cast<int64_t>(count)) {
    throw BuildError(std::string("no ") + what + " " + std::to_string(value) + " (the plan has " + std::to_string(count) + ")");
  }
  return static_cast<std::size_t>(value);
}

void check_shape(const Ints& sizes, const Ints& strides) {
  if (sizes.size() != strides.size()) {
    throw BuildError(std::to_string(sizes.size()) + " sizes but " + std::to_string(strides.size()) + " strides");
  }
  for (int64_t size : sizes.constants()) {
    if (size < 0) {
      throw BuildError("negative size " + std::to_string(size));
    }
  }
  for (int64_t stride : strides.constants()) {
    if (stride < 0) {
      throw BuildError("negative stride " + std::to_string(stride));
    }
  }
}

}  // namespace dyncomp::executor
