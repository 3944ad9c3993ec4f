// A boxed call of an operator: what is known when the plan is built, and what each call fills in.
#pragma once

#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "executor/fields.h"

namespace dyncomp::executor {

struct SlotFill {
  std::size_t argument;
  int slot;
};

// A number as its argument takes it.
enum class Form { kInt, kTruth, kFloat, kScalar, kTensor };

struct NumberFill {
  std::size_t argument;
  Form form;
  Number number;
};

struct IntListFill {
  std::size_t argument;
  Ints values;
};

// A list of floats, or of scalars.
struct NumberListFill {
  std::size_t argument;
  Form form;
  std::vector<Number> numbers;
};

// Elements are slots, or `fixed` where the slot is -1 (a constant tensor, or None where the list allows it).
struct TensorListFill {
  std::size_t argument;
  bool optional;
  std::vector<int> slots;
  std::vector<at::Tensor> fixed;
};

struct Call {
  std::vector<c10::IValue> constants;  // one an argument; None where a fill follows
  std::vector<SlotFill> slots;
  std::vector<NumberFill> numbers;
  std::vector<IntListFill> int_lists;
  std::vector<NumberListFill> number_lists;
  std::vector<TensorListFill> tensor_lists;
};

// Where a result goes: a slot (-1: dropped), a register, or for a list of tensors one slot an element.
struct Result {
  enum class Kind { kTensor, kTensors, kInt, kTruth, kFloat } kind;
  std::vector<int> targets;
};

// A number where a tensor is expected: a 0-d tensor that weighs in type promotion as a number does.
at::Tensor wrapped_number(const c10::Scalar& scalar);

StepPtr make_op(c10::OperatorHandle op, Call call, std::vector<Result> results);

}  // namespace dyncomp::executor
