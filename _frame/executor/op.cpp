// op: a boxed call of any registered operator, below autograd.
//
// A call copies the constants onto the frame's stack and fills in what it alone knows: slots, registers, and lists that
// contain them.
#include "executor/op.h"

#include <ATen/ScalarOps.h>

#include "executor/op_memory.h"
#include "executor/text.h"
#include "numbers.h"

namespace dyncomp::executor {

at::Tensor wrapped_number(const c10::Scalar& scalar) {
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

namespace {

c10::IValue in_form(Form form, const Number& number, const Frame& frame) {
  c10::Scalar scalar = number.get(frame);
  switch (form) {
    case Form::kInt:
      return scalar.toLong();
    case Form::kTruth:
      return scalar.toBool();
    case Form::kFloat:
      return scalar.toDouble();
    case Form::kTensor:
      return wrapped_number(scalar);
    case Form::kScalar:
      break;
  }
  return scalar;
}

c10::IValue number_list(const NumberListFill& fill, const Frame& frame) {
  if (fill.form == Form::kFloat) {
    c10::List<double> list;
    for (const Number& number : fill.numbers) {
      list.push_back(number.get(frame).toDouble());
    }
    return list;
  }
  c10::impl::GenericList list(c10::NumberType::get());
  for (const Number& number : fill.numbers) {
    list.push_back(c10::IValue(number.get(frame)));
  }
  return list;
}

c10::IValue tensor_list(const TensorListFill& fill, const Frame& frame) {
  if (fill.optional) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(fill.slots.size());
    for (std::size_t i = 0; i < fill.slots.size(); ++i) {
      const at::Tensor& tensor = fill.slots[i] < 0 ? fill.fixed[i] : frame.slots[fill.slots[i]];
      list.push_back(tensor.defined() ? std::make_optional(tensor) : std::nullopt);
    }
    return list;
  }
  c10::List<at::Tensor> list;
  list.reserve(fill.slots.size());
  for (std::size_t i = 0; i < fill.slots.size(); ++i) {
    list.push_back(fill.slots[i] < 0 ? fill.fixed[i] : frame.slots[fill.slots[i]]);
  }
  return list;
}

class Op final : public Step {
 public:
  Op(c10::OperatorHandle op, Call call, std::vector<Result> results)
      : op_(std::move(op)), call_(std::move(call)), results_(std::move(results)) {}

  void run(Frame& frame) const override {
    auto& stack = frame.stack;
    stack.assign(call_.constants.begin(), call_.constants.end());
    for (const auto& fill : call_.slots) {
      stack[fill.argument] = frame.slots[fill.slot];
    }
    for (const auto& fill : call_.numbers) {
      stack[fill.argument] = in_form(fill.form, fill.number, frame);
    }
    for (const auto& fill : call_.int_lists) {
      Ints::Buffer buffer;
      stack[fill.argument] = c10::List<int64_t>(fill.values.get(frame, buffer));
    }
    for (const auto& fill : call_.number_lists) {
      stack[fill.argument] = number_list(fill, frame);
    }
    for (const auto& fill : call_.tensor_lists) {
      stack[fill.argument] = tensor_list(fill, frame);
    }
    {
      PooledResults pooled;
      op_.callBoxed(stack);
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
      take(frame, results_[i], stack[i]);
    }
    stack.clear();
  }

 private:
  void take(Frame& frame, const Result& result, c10::IValue& value) const {
    switch (result.kind) {
      case Result::Kind::kTensor:
        if (result.targets[0] >= 0) {
          frame.slots[result.targets[0]] = value.isNone() ? at::Tensor() : std::move(value).toTensor();
        }
        return;
      case Result::Kind::kInt:
        frame.registers[result.targets[0]] = value.isBool() ? value.toBool() : value.toInt();
        return;
      case Result::Kind::kTruth:
        frame.registers[result.targets[0]] = value.toBool();
        return;
      case Result::Kind::kFloat:
        frame.registers[result.targets[0]] = numbers::bits(value.toDouble());
        return;
      case Result::Kind::kTensors:
        take_list(frame, result.targets, std::move(value).toTensorVector());
    }
  }

  void take_list(Frame& frame, const std::vector<int>& targets, std::vector<at::Tensor> tensors) const {
    TORCH_CHECK(tensors.size() == targets.size(), "dyncomp: ", op_.operator_name(), " returned ", text(tensors.size()),
                " tensors where the plan has slots for ", text(targets.size()));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (targets[i] >= 0) {
        frame.slots[targets[i]] = std::move(tensors[i]);
      }
    }
  }

  c10::OperatorHandle op_;
  Call call_;
  std::vector<Result> results_;
};

}  // namespace

StepPtr make_op(c10::OperatorHandle op, Call call, std::vector<Result> results) {
  return std::make_unique<Op>(std::move(op), std::move(call), std::move(results));
}

}  // namespace dyncomp::executor
