#include "guards/program.h"

#include <algorithm>
#include <cstring>

#include "guards/check.h"
#include "guards/tensor.h"
#include "ref.h"

namespace dyncomp {
namespace {

using Special = ProgramStep::Special;

struct SpecialRow {
  const char* name;
  Special special;
  uint8_t registers;  // operands that are registers
  uint8_t numbers;    // and those that are numbers
};

constexpr SpecialRow kSpecials[] = {
    {"const", Special::constant, 0, 1},          {"fconst", Special::constant, 0, 1},
    {"require", Special::require, 1, 0},         {"require_eq", Special::require_eq, 2, 0},
    {"require_bits", Special::require_bits, 1, 1}, {"require_range", Special::require_range, 1, 2},
};

struct WhatRow {
  const char* name;
  ProgramInput::What what;
};

constexpr WhatRow kWhats[] = {
    {"size", ProgramInput::What::size},   {"stride", ProgramInput::What::stride}, {"offset", ProgramInput::What::offset},
    {"int", ProgramInput::What::integer}, {"float", ProgramInput::What::real},    {"len", ProgramInput::What::length},
};

bool is_require(const ProgramStep& step) { return step.operation == nullptr && step.special != Special::constant; }

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

bool read_operands(PyObject* tuple, size_t defined, size_t registers, size_t numbers, ProgramStep& step) {
  if (static_cast<size_t>(PyTuple_GET_SIZE(tuple)) != 1 + registers + numbers) return bad("wrong number of operands", tuple);
  int32_t* targets[] = {&step.a, &step.b, &step.c};
  for (size_t i = 0; i < registers; ++i) {
    if (!read_register(PyTuple_GET_ITEM(tuple, 1 + i), defined, targets[i])) return false;
  }
  bool range = step.operation == nullptr && step.special == Special::require_range;
  if (numbers > 0 && !read_number(PyTuple_GET_ITEM(tuple, 1 + registers), range, &step.low_open, &step.low)) return false;
  return numbers < 2 || read_number(PyTuple_GET_ITEM(tuple, 2 + registers), range, &step.high_open, &step.high);
}

bool read_step(PyObject* tuple, size_t defined, ProgramStep& step) {
  if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < 1 || !PyUnicode_Check(PyTuple_GET_ITEM(tuple, 0))) {
    return bad("expected (operation, operands...)", tuple);
  }
  PyObject* name = PyTuple_GET_ITEM(tuple, 0);
  step = {};
  for (const SpecialRow& row : kSpecials) {
    if (PyUnicode_CompareWithASCIIString(name, row.name) != 0) continue;
    step.special = row.special;
    return read_operands(tuple, defined, row.registers, row.numbers, step);
  }
  for (const numbers::Row& row : numbers::kRows) {
    if (PyUnicode_CompareWithASCIIString(name, row.name) != 0) continue;
    step.operation = row.operation;
    return read_operands(tuple, defined, std::strlen(row.operands), 0, step);
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
  if (input.what == ProgramInput::What::real) {
    if (!PyFloat_CheckExact(value)) return false;
    *number = numbers::bits(PyFloat_AS_DOUBLE(value));
    return true;
  }
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

// Room for the registers of one run.
class Registers {
 public:
  explicit Registers(size_t count) : many_(count > kSmall ? new int64_t[count] : nullptr), at_(many_ ? many_.get() : small_) {}
  int64_t* get() { return at_; }

 private:
  static constexpr size_t kSmall = 96;
  int64_t small_[kSmall];
  std::unique_ptr<int64_t[]> many_;
  int64_t* at_;
};

// Whether the step has a result, or its requirement holds.
bool run_step(const ProgramStep& step, const int64_t* registers, int64_t* result) {
  if (step.operation != nullptr) return step.operation(registers[step.a], registers[step.b], registers[step.c], result);
  switch (step.special) {
    case Special::constant: *result = step.low; return true;
    case Special::require: return registers[step.a] != 0;
    case Special::require_eq: return registers[step.a] == registers[step.b];
    case Special::require_bits: return registers[step.a] == step.low;
    case Special::require_range:
      return (step.low_open || registers[step.a] >= step.low) && (step.high_open || registers[step.a] <= step.high);
  }
  return false;
}

// Sorts the steps into what the check runs.
void arrange(Program& program) {
  auto is_input = [&](int32_t reg) { return reg < static_cast<int32_t>(program.inputs.size()); };
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const ProgramStep& step = program.steps[i];
    if (is_require(step) && step.special == Special::require_range && is_input(step.a)) {
      program.bounds.push_back({step.a, step.low_open ? INT64_MIN : step.low, step.high_open ? INT64_MAX : step.high});
    } else if (is_require(step) && step.special == Special::require_eq && is_input(step.a) && is_input(step.b)) {
      program.pairs.push_back({step.a, step.b});
    } else {
      program.computed.push_back({step, static_cast<int32_t>(program.inputs.size() + i)});
    }
  }
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
    requirements += is_require(step);
    program->steps.push_back(step);
  }
  std::stable_sort(program->inputs.begin(), program->inputs.end(),
                   [](const ProgramInput& a, const ProgramInput& b) { return a.node < b.node; });
  arrange(*program);
  if (requirements == PyTuple_GET_SIZE(texts)) return program;
  bad("one text a require", texts);
  return nullptr;
}

bool program_holds(const Program& program, PyObject* const* values) {
  Registers room(program.registers());
  int64_t* registers = room.get();
  if (!read_inputs(program, values, registers)) return false;
  bool all = true;
  for (const Program::Bound& bound : program.bounds) {
    int64_t number = registers[bound.reg];
    all &= number >= bound.low && number <= bound.high;
  }
  for (const Program::Pair& pair : program.pairs) all &= registers[pair.a] == registers[pair.b];
  if (!all) return false;
  for (const Program::Computed& computed : program.computed) {
    const ProgramStep& step = computed.step;
    // What strides are made of, without a call.
    if (step.operation == numbers::detail::mul) {
      if (__builtin_mul_overflow(registers[step.a], registers[step.b], &registers[computed.target])) return false;
    } else if (!run_step(step, registers, &registers[computed.target])) {
      return false;
    }
  }
  return true;
}

int32_t program_failure(const Program& program, PyObject* const* values) {
  Registers room(program.registers());
  int64_t* registers = room.get();
  if (!read_inputs(program, values, registers)) return -2;
  size_t next = program.inputs.size();
  for (const ProgramStep& step : program.steps) {
    if (!run_step(step, registers, &registers[next++])) [[unlikely]] {
      int32_t requirement = 0;
      for (const ProgramStep* before = program.steps.data(); before != &step; ++before) {
        requirement += is_require(*before);
      }
      return requirement;
    }
  }
  return -1;
}

}  // namespace dyncomp
