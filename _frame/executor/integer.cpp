// int, size, stride: the sizes of this call, and arithmetic on them, in registers. Division rounds down, as Python's does.
#include <algorithm>
#include <cstring>

#include "executor/opcodes.h"
#include "executor/raise.h"

namespace dyncomp::executor {

namespace {

void check(bool overflowed) {
  if (overflowed) [[unlikely]] {
    raise_python(PyExc_OverflowError, "dyncomp: a number of this call does not fit in 64 bits");
  }
}

int64_t add(int64_t a, int64_t b) {
  int64_t result = 0;
  check(__builtin_add_overflow(a, b, &result));
  return result;
}

int64_t sub(int64_t a, int64_t b) {
  int64_t result = 0;
  check(__builtin_sub_overflow(a, b, &result));
  return result;
}

int64_t mul(int64_t a, int64_t b) {
  int64_t result = 0;
  check(__builtin_mul_overflow(a, b, &result));
  return result;
}

int64_t floordiv(int64_t a, int64_t b) {
  if (b == 0) [[unlikely]] {
    raise_python(PyExc_ZeroDivisionError, "integer division or modulo by zero");
  }
  if (b == -1) {
    return sub(0, a);
  }
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t mod(int64_t a, int64_t b) { return b == -1 ? 0 : a - floordiv(a, b) * b; }
int64_t min(int64_t a, int64_t b) { return std::min(a, b); }
int64_t max(int64_t a, int64_t b) { return std::max(a, b); }

using Operation = int64_t (*)(int64_t, int64_t);

struct Row {
  const char* name;
  Operation operation;
};

constexpr Row kOperations[] = {{"add", add}, {"sub", sub}, {"mul", mul}, {"floordiv", floordiv}, {"mod", mod}, {"min", min}, {"max", max}};

class Arithmetic final : public Step {
 public:
  Arithmetic(int reg, Operation operation, Int a, Int b) : reg_(reg), operation_(operation), a_(a), b_(b) {}
  void run(Frame& frame) const override { frame.registers[reg_] = operation_(a_.get(frame), b_.get(frame)); }

 private:
  int reg_;
  Operation operation_;
  Int a_, b_;
};

template <bool stride>
class Measure final : public Step {
 public:
  Measure(int reg, int slot, int64_t dim) : reg_(reg), slot_(slot), dim_(dim) {}

  void run(Frame& frame) const override {
    const at::Tensor& tensor = frame.slots[slot_];
    frame.registers[reg_] = stride ? tensor.stride(dim_) : tensor.size(dim_);
  }

 private:
  int reg_, slot_;
  int64_t dim_;
};

template <bool stride>
StepPtr build_measure(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 3);
  int reg = fields.define_register("register");
  int slot = fields.read("slot");
  int64_t dim = fields.integer("dim");
  return std::make_unique<Measure<stride>>(reg, slot, dim);
}

}  // namespace

StepPtr build_int(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 4);
  // The operands are read first: `("int", 0, "add", ("s", 0), 1)` needs register 0 to be written already.
  int64_t target = fields.integer("register");
  std::string name = fields.text("operation");
  Int a = fields.number("a"), b = fields.number("b");
  for (const Row& row : kOperations) {
    if (name == row.name) {
      return std::make_unique<Arithmetic>(builder.define_register(target), row.operation, a, b);
    }
  }
  throw BuildError("no integer operation '" + name + "'");
}

StepPtr build_size(Builder& builder, PyObject* instruction) { return build_measure<false>(builder, instruction); }
StepPtr build_stride(Builder& builder, PyObject* instruction) { return build_measure<true>(builder, instruction); }

}  // namespace dyncomp::executor
