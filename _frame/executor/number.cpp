// number, compute: the numbers that come into a call, and arithmetic on ints, truths and floats in registers.
//
// A register holds 64 bits. What they mean is known while the plan is built, so that a call checks nothing. The arithmetic
// is that of guards (`numbers.h`).
#include <cstring>

#include "executor/opcodes.h"
#include "executor/raise.h"
#include "numbers.h"

namespace dyncomp::executor {

namespace {

class ReadInput final : public Step {
 public:
  ReadInput(int reg, int input) : reg_(reg), input_(input) {}
  void run(Frame& frame) const override { frame.registers[reg_] = frame.numbers[input_]; }

 private:
  int reg_, input_;
};

class Compute final : public Step {
 public:
  Compute(int reg, const numbers::Row& row, const std::vector<Number>& operands) : reg_(reg), row_(row) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands_[i] = operands[i].bits;
    }
  }

  void run(Frame& frame) const override {
    int64_t result = 0;
    if (!row_.operation(operands_[0].get(frame), operands_[1].get(frame), operands_[2].get(frame), &result)) [[unlikely]] {
      raise_python(PyExc_ArithmeticError, std::string("dyncomp: '") + row_.name + "' of numbers of this call has no result");
    }
    frame.registers[reg_] = result;
  }

 private:
  int reg_;
  const numbers::Row& row_;
  Int operands_[3];
};

const numbers::Row& row_named(const std::string& name) {
  for (const numbers::Row& row : numbers::kRows) {
    if (name == row.name) {
      return row;
    }
  }
  throw BuildError("no operation '" + name + "' on numbers");
}

// The type of the result. The operands of `select` are of one type.
NumberType check_operands(const numbers::Row& row, const std::vector<Number>& operands) {
  if (operands.size() != std::strlen(row.operands)) {
    throw BuildError(std::string(row.name) + " takes " + std::to_string(std::strlen(row.operands)) + " operands, not " +
                     std::to_string(operands.size()));
  }
  for (std::size_t i = 0; i < operands.size(); ++i) {
    bool is_float = operands[i].type == NumberType::kFloat;
    bool wants_float = row.operands[i] == 'x' ? operands.back().type == NumberType::kFloat : row.operands[i] == 'f';
    if (is_float != wants_float) {
      throw BuildError("operand " + std::to_string(i) + " of " + row.name + " must be " + (wants_float ? "a float" : "an int"));
    }
  }
  switch (row.result) {
    case 'i':
      return NumberType::kInt;
    case 'b':
      return NumberType::kTruth;
    case 'f':
      return NumberType::kFloat;
    default:
      return operands[1].type == operands[2].type ? operands[1].type : NumberType::kInt;
  }
}

}  // namespace

StepPtr build_number(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 2);
  int64_t target = fields.integer("register");
  std::size_t input = fields.index(static_cast<std::size_t>(builder.program.inputs), "input");
  if (!builder.slots[input].number) {
    throw BuildError("input " + std::to_string(input) + " is a tensor, no number");
  }
  int reg = builder.define_register(target, builder.program.kinds[input]);
  return std::make_unique<ReadInput>(reg, static_cast<int>(input));
}

StepPtr build_compute(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 3);
  int64_t target = fields.integer("register");
  const numbers::Row& row = row_named(fields.text("operation"));
  std::vector<Number> operands;
  for (PyObject* item : items(fields.object(), "operands")) {
    operands.push_back(to_number(builder, item, "an operand"));
  }
  NumberType type = check_operands(row, operands);
  return std::make_unique<Compute>(builder.define_register(target, type), row, operands);
}

}  // namespace dyncomp::executor
