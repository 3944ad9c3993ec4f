#include "guards/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "guards/check.h"
#include "guards/tensor.h"
#include "ref.h"

namespace dyncomp {
namespace {

// One register: an int, a truth, or the bits of a double.
struct Values {
  int64_t* registers;
  const ProgramStep& step;
  int64_t a() const { return registers[step.a]; }
  int64_t b() const { return registers[step.b]; }
  int64_t c() const { return registers[step.c]; }
  double real(int32_t index) const {
    double value;
    std::memcpy(&value, &registers[index], sizeof value);
    return value;
  }
  double x() const { return real(step.a); }
  double y() const { return real(step.b); }
};

// Operations write their result and say whether there is one.
using Operation = bool (*)(const Values&, int64_t*);

bool give(double value, int64_t* result) {
  std::memcpy(result, &value, sizeof value);
  return true;
}

bool add(const Values& v, int64_t* r) { return !__builtin_add_overflow(v.a(), v.b(), r); }
bool sub(const Values& v, int64_t* r) { return !__builtin_sub_overflow(v.a(), v.b(), r); }
bool mul(const Values& v, int64_t* r) { return !__builtin_mul_overflow(v.a(), v.b(), r); }

bool floordiv(const Values& v, int64_t* r) {
  int64_t a = v.a(), b = v.b();
  if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
  *r = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return true;
}

bool mod(const Values& v, int64_t* r) {
  int64_t a = v.a(), b = v.b();
  if (b == 0) return false;
  *r = b == -1 ? 0 : a % b;
  if (*r != 0 && (*r < 0) != (b < 0)) *r += b;
  return true;
}

bool smaller(const Values& v, int64_t* r) { *r = v.b() < v.a() ? v.b() : v.a(); return true; }
bool larger(const Values& v, int64_t* r) { *r = v.b() > v.a() ? v.b() : v.a(); return true; }

bool power(const Values& v, int64_t* r) {
  int64_t base = v.a(), exponent = v.b();
  if (exponent < 0) return false;
  *r = 1;
  if (base == 0 || base == 1) {
    *r = exponent == 0 ? 1 : base;
    return true;
  }
  if (base == -1) {
    *r = exponent % 2 == 0 ? 1 : -1;
    return true;
  }
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(*r, base, r)) return false;
  }
  return true;
}

bool shift_left(const Values& v, int64_t* r) {
  if (v.b() < 0 || v.b() > 62) return false;
  return !__builtin_mul_overflow(v.a(), int64_t{1} << v.b(), r);
}

bool shift_right(const Values& v, int64_t* r) {
  if (v.b() < 0 || v.b() > 63) return false;
  *r = v.a() >> v.b();
  return true;
}

bool bit_and(const Values& v, int64_t* r) { *r = v.a() & v.b(); return true; }
bool bit_or(const Values& v, int64_t* r) { *r = v.a() | v.b(); return true; }
bool bit_xor(const Values& v, int64_t* r) { *r = v.a() ^ v.b(); return true; }
bool equal(const Values& v, int64_t* r) { *r = v.a() == v.b(); return true; }
bool less(const Values& v, int64_t* r) { *r = v.a() < v.b(); return true; }
bool negation(const Values& v, int64_t* r) { *r = v.a() == 0; return true; }
bool both(const Values& v, int64_t* r) { *r = v.a() != 0 && v.b() != 0; return true; }
bool either(const Values& v, int64_t* r) { *r = v.a() != 0 || v.b() != 0; return true; }
bool select(const Values& v, int64_t* r) { *r = v.a() != 0 ? v.b() : v.c(); return true; }
bool constant(const Values& v, int64_t* r) { *r = v.step.low; return true; }

bool exact(int64_t value) {
  constexpr int64_t kExact = int64_t{1} << 53;  // integers up to here are doubles
  return value <= kExact && value >= -kExact;
}

bool to_float(const Values& v, int64_t* r) { return exact(v.a()) && give(static_cast<double>(v.a()), r); }

bool true_divide(const Values& v, int64_t* r) {
  return v.b() != 0 && exact(v.a()) && exact(v.b()) && give(static_cast<double>(v.a()) / static_cast<double>(v.b()), r);
}

bool fadd(const Values& v, int64_t* r) { return give(v.x() + v.y(), r); }
bool fsub(const Values& v, int64_t* r) { return give(v.x() - v.y(), r); }
bool fmul(const Values& v, int64_t* r) { return give(v.x() * v.y(), r); }
bool fdiv(const Values& v, int64_t* r) { return v.y() != 0.0 && give(v.x() / v.y(), r); }

// Python's % and // on floats: the remainder has the divisor's sign.
bool fmod_rest(double a, double b, double* rest) {
  if (b == 0.0) return false;
  *rest = std::fmod(a, b);
  if (*rest == 0.0) {
    *rest = std::copysign(0.0, b);
  } else if ((b < 0) != (*rest < 0)) {
    *rest += b;
  }
  return true;
}

bool fmod(const Values& v, int64_t* r) {
  double rest;
  return fmod_rest(v.x(), v.y(), &rest) && give(rest, r);
}

bool ffloordiv(const Values& v, int64_t* r) {
  double a = v.x(), b = v.y();
  if (b == 0.0) return false;
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (b < 0) != (rest < 0)) quotient -= 1.0;
  if (quotient == 0.0) return give(std::copysign(0.0, a / b), r);
  double floor = std::floor(quotient);
  return give(quotient - floor > 0.5 ? floor + 1.0 : floor, r);
}

bool fpow(const Values& v, int64_t* r) {
  double a = v.x(), b = v.y();
  if ((a == 0.0 && b < 0 && std::isfinite(b)) || (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b))) return false;
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return false;
  return give(result, r);
}

bool fmin(const Values& v, int64_t* r) { return give(v.y() < v.x() ? v.y() : v.x(), r); }
bool fmax(const Values& v, int64_t* r) { return give(v.y() > v.x() ? v.y() : v.x(), r); }
bool fneg(const Values& v, int64_t* r) { return give(-v.x(), r); }
bool fabs(const Values& v, int64_t* r) { return give(std::fabs(v.x()), r); }
bool feq(const Values& v, int64_t* r) { *r = v.x() == v.y(); return true; }
bool flt(const Values& v, int64_t* r) { *r = v.x() < v.y(); return true; }
bool fle(const Values& v, int64_t* r) { *r = v.x() <= v.y(); return true; }
bool fisint(const Values& v, int64_t* r) { *r = std::isfinite(v.x()) && v.x() == std::floor(v.x()); return true; }

template <double (*round_to)(double)>
bool whole(const Values& v, int64_t* r) {
  double value = round_to(v.x());
  if (!(std::fabs(value) < 9223372036854775808.0)) return false;
  *r = static_cast<int64_t>(value);
  return true;
}

// A result that the math module would refuse is none.
template <double (*function)(double)>
bool math(const Values& v, int64_t* r) {
  double value = function(v.x());
  if (std::isnan(value) && !std::isnan(v.x())) return false;
  if (std::isinf(value) && std::isfinite(v.x())) return false;
  return give(value, r);
}

bool require(const Values& v, int64_t*) { return v.a() != 0; }
bool require_eq(const Values& v, int64_t*) { return v.a() == v.b(); }
bool require_bits(const Values& v, int64_t*) { return v.a() == v.step.low; }
bool require_range(const Values& v, int64_t*) {
  return (v.step.low_open || v.a() >= v.step.low) && (v.step.high_open || v.a() <= v.step.high);
}

struct Row {
  const char* name;
  Operation operation;
  uint8_t registers;  // operands that are registers
  uint8_t numbers;    // and those that are numbers
};

constexpr Row kRows[] = {
    {"const", constant, 0, 1}, {"fconst", constant, 0, 1},
    {"require", require, 1, 0}, {"require_eq", require_eq, 2, 0},
    {"require_bits", require_bits, 1, 1}, {"require_range", require_range, 1, 2},
    {"add", add, 2, 0}, {"sub", sub, 2, 0}, {"mul", mul, 2, 0}, {"floordiv", floordiv, 2, 0}, {"mod", mod, 2, 0},
    {"min", smaller, 2, 0}, {"max", larger, 2, 0}, {"pow", power, 2, 0}, {"shl", shift_left, 2, 0},
    {"shr", shift_right, 2, 0}, {"bitand", bit_and, 2, 0}, {"bitor", bit_or, 2, 0}, {"bitxor", bit_xor, 2, 0},
    {"eq", equal, 2, 0}, {"lt", less, 2, 0}, {"not", negation, 1, 0}, {"and", both, 2, 0}, {"or", either, 2, 0},
    {"select", select, 3, 0}, {"tofloat", to_float, 1, 0}, {"truediv", true_divide, 2, 0},
    {"fadd", fadd, 2, 0}, {"fsub", fsub, 2, 0}, {"fmul", fmul, 2, 0}, {"fdiv", fdiv, 2, 0},
    {"ffloordiv", ffloordiv, 2, 0}, {"fmod", fmod, 2, 0}, {"fpow", fpow, 2, 0}, {"fmin", fmin, 2, 0},
    {"fmax", fmax, 2, 0}, {"fneg", fneg, 1, 0}, {"fabs", fabs, 1, 0}, {"feq", feq, 2, 0}, {"flt", flt, 2, 0},
    {"fle", fle, 2, 0}, {"fisint", fisint, 1, 0}, {"ffloor", whole<std::floor>, 1, 0},
    {"fceil", whole<std::ceil>, 1, 0}, {"ftrunc", whole<std::trunc>, 1, 0}, {"fround", whole<std::nearbyint>, 1, 0},
    {"fsqrt", math<std::sqrt>, 1, 0}, {"fcos", math<std::cos>, 1, 0}, {"fcosh", math<std::cosh>, 1, 0},
    {"fsin", math<std::sin>, 1, 0}, {"fsinh", math<std::sinh>, 1, 0}, {"ftan", math<std::tan>, 1, 0},
    {"ftanh", math<std::tanh>, 1, 0}, {"fasin", math<std::asin>, 1, 0}, {"facos", math<std::acos>, 1, 0},
    {"fatan", math<std::atan>, 1, 0}, {"flog2", math<std::log2>, 1, 0},
};
static_assert(sizeof(kRows) / sizeof(Row) < 256);

struct WhatRow {
  const char* name;
  ProgramInput::What what;
};

constexpr WhatRow kWhats[] = {
    {"size", ProgramInput::What::size},   {"stride", ProgramInput::What::stride}, {"offset", ProgramInput::What::offset},
    {"int", ProgramInput::What::integer}, {"float", ProgramInput::What::real},    {"len", ProgramInput::What::length},
};

bool is_require(uint8_t operation) { return std::strncmp(kRows[operation].name, "require", 7) == 0; }

// ---- building ---------------------------------------------------------------------------------------------------

bool bad(const char* text, PyObject* object) {
  PyErr_Format(PyExc_ValueError, "int_program: %s: %R", text, object);
  return false;
}

bool read_int(PyObject* object, int64_t* number) {
  if (!PyLong_Check(object)) return bad("expected an int", object);
  *number = PyLong_AsLongLong(object);
  return *number != -1 || !PyErr_Occurred();
}

bool read_register(PyObject* object, size_t limit, int32_t* index) {
  int64_t number;
  if (!read_int(object, &number)) return false;
  if (number < 0 || number >= static_cast<int64_t>(limit)) return bad("no such register so far", object);
  *index = static_cast<int32_t>(number);
  return true;
}

bool read_input(PyObject* tuple, int32_t position, int32_t target, ProgramInput& input) {
  int node;
  const char* what;
  long long dim;
  if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "isL:int_program input", &node, &what, &dim)) {
    return PyErr_Occurred() != nullptr ? false : bad("expected (node, what, dim)", tuple);
  }
  if (node < 0 || node > position) return bad("expected an earlier node", tuple);
  for (const WhatRow& row : kWhats) {
    if (std::strcmp(row.name, what) != 0) continue;
    input = {row.what, node, dim, target};
    return dim >= 0 || bad("a dimension counts from 0", tuple);
  }
  return bad("unknown kind of input", tuple);
}

bool read_number(PyObject* object, bool may_be_open, bool* open, int64_t* number) {
  *open = may_be_open && object == Py_None;
  return *open || read_int(object, number);
}

bool read_step(PyObject* tuple, size_t defined, ProgramStep& step) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(tuple, 0))) {
    return bad("expected (operation, operands...)", tuple);
  }
  for (const Row& row : kRows) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(tuple, 0), row.name) != 0) continue;
    if (PyTuple_GET_SIZE(tuple) != 1 + row.registers + row.numbers) return bad("wrong number of operands", tuple);
    step = {};
    step.operation = static_cast<uint8_t>(&row - kRows);
    int32_t* registers[] = {&step.a, &step.b, &step.c};
    for (int i = 0; i < row.registers; ++i) {
      if (!read_register(PyTuple_GET_ITEM(tuple, 1 + i), defined, registers[i])) return false;
    }
    bool range = row.operation == require_range;
    PyObject* const* numbers = &PyTuple_GET_ITEM(tuple, 0) + 1 + row.registers;
    if (row.numbers > 0 && !read_number(numbers[0], range, &step.low_open, &step.low)) return false;
    return row.numbers < 2 || read_number(numbers[1], range, &step.high_open, &step.high);
  }
  return bad("unknown operation", tuple);
}

// ---- running ----------------------------------------------------------------------------------------------------

bool is_tensor_number(ProgramInput::What what) { return what <= ProgramInput::What::offset; }

bool read_tensor_number(const ProgramInput& input, const TensorNumbers& tensor, int64_t* number) {
  if (input.what == ProgramInput::What::offset) {
    *number = tensor.offset;
    return true;
  }
  if (input.dim >= tensor.dims) return false;
  *number = (input.what == ProgramInput::What::size ? tensor.sizes : tensor.strides)[input.dim];
  return true;
}

bool read_plain_number(const ProgramInput& input, PyObject* value, int64_t* number) {
  if (input.what == ProgramInput::What::length) return (*number = length_of(value)) >= 0;
  if (input.what == ProgramInput::What::real) return PyFloat_CheckExact(value) && give(PyFloat_AS_DOUBLE(value), number);
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(value, &overflow);
  return overflow == 0;
}

// Fills the first registers.
bool read_inputs(const Program& program, PyObject* const* values, int64_t* registers) {
  TensorNumbers tensor{};
  int32_t seen = -1;
  for (const ProgramInput& input : program.inputs) {
    PyObject* value = values[input.node];
    if (!is_tensor_number(input.what)) {
      if (!read_plain_number(input, value, &registers[input.target])) return false;
      continue;
    }
    if (seen != input.node && !tensor_numbers(value, &tensor)) return false;
    seen = input.node;
    if (!read_tensor_number(input, tensor, &registers[input.target])) return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<Program> program_build(PyObject* payload, int32_t position) {
  PyObject *inputs, *code, *texts;
  if (!PyTuple_Check(payload)) {
    bad("expected (inputs, code, texts)", payload);
    return nullptr;
  }
  if (!PyArg_ParseTuple(payload, "O!O!O!:int_program", &PyTuple_Type, &inputs, &PyTuple_Type, &code, &PyTuple_Type,
                        &texts)) {
    return nullptr;
  }
  auto program = std::make_unique<Program>();
  Py_ssize_t requirements = 0;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(inputs); ++i) {
    ProgramInput input;
    if (!read_input(PyTuple_GET_ITEM(inputs, i), position, static_cast<int32_t>(i), input)) return nullptr;
    program->inputs.push_back(input);
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code); ++i) {
    ProgramStep step;
    if (!read_step(PyTuple_GET_ITEM(code, i), program->registers(), step)) return nullptr;
    requirements += is_require(step.operation);
    program->steps.push_back(step);
  }
  std::stable_sort(program->inputs.begin(), program->inputs.end(),
                   [](const ProgramInput& a, const ProgramInput& b) { return a.node < b.node; });
  if (requirements == PyTuple_GET_SIZE(texts)) return program;
  bad("one text a require", texts);
  return nullptr;
}

int32_t program_failure(const Program& program, PyObject* const* values) {
  constexpr size_t kSmall = 96;
  int64_t small[kSmall];
  std::unique_ptr<int64_t[]> many;
  int64_t* registers = small;
  if (program.registers() > kSmall) {
    many = std::make_unique<int64_t[]>(program.registers());
    registers = many.get();
  }
  if (!read_inputs(program, values, registers)) return -2;
  size_t next = program.inputs.size();
  for (const ProgramStep& step : program.steps) {
    if (!kRows[step.operation].operation(Values{registers, step}, &registers[next++])) [[unlikely]] {
      int32_t requirement = 0;
      for (const ProgramStep* before = program.steps.data(); before != &step; ++before) {
        requirement += is_require(before->operation);
      }
      return requirement;
    }
  }
  return -1;
}

}  // namespace dyncomp
