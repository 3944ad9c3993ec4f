// The user's outputs, from raw outputs and inputs: objects that are there already, and views that autograd knows.
//
//   ("raw", 0)                          y                  ("view", ("raw", 0), ...)      y[0], a view of y to autograd
//                                                          ("view", ("output", 1), ...)   y[0][1], a view of that output
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/ops/as_strided.h>

#include "executor/text.h"
#include "executor/training_parts.h"

namespace dyncomp::executor {

namespace {

// The whole number that the forward returned at this place.
int64_t whole_number_at(const Values& values, int place) {
  for (const PlacedNumber& number : values.numbers) {
    if (number.place == place) {
      return number.bits;
    }
  }
  TORCH_INTERNAL_ASSERT(false, "a training plan's forward returned no number at ", text(place));
}

// The call's arguments after the base, with this call's numbers in place.
std::vector<c10::IValue> arguments_of(const ViewCall& call, const Values& returned) {
  std::vector<c10::IValue> rest = call.rest;
  for (const ViewCall::Number& number : call.numbers) {
    c10::IValue& argument = rest.at(static_cast<std::size_t>(number.argument));
    int64_t value = whole_number_at(returned, number.raw);
    if (number.element < 0) {
      argument = value;
      continue;
    }
    std::vector<int64_t> items = argument.toIntVector();  // a copy: lists are shared between IValues
    items.at(static_cast<std::size_t>(number.element)) = value;
    argument = c10::IValue(std::move(items));
  }
  return rest;
}

at::Tensor plain_view_of(const at::Tensor& base, const TrainingOutput& rule) {
  int64_t offset = base.storage_offset() + rule.offset;
  if (rule.differentiable || !base.requires_grad()) {
    return at::as_strided(base, rule.sizes, rule.strides, offset);
  }
  at::AutoGradMode off(false);
  at::Tensor alias = base.detach();
  bool same = alias.sizes() == at::IntArrayRef(rule.sizes) && alias.strides() == at::IntArrayRef(rule.strides) && rule.offset == 0;
  return same ? alias : at::as_strided(alias, rule.sizes, rule.strides, offset);
}

// The number that the forward returned at this place.
PyObject* number_at(const Values& values, int place) {
  for (const PlacedNumber& number : values.numbers) {
    if (number.place == place) {
      return make_number(number.kind, number.bits);
    }
  }
  Py_RETURN_NONE;
}

}  // namespace

// The program's own views, one after the other: gradients come out of them as in eager, strides included.
at::Tensor OutputMaker::called_view_of(const at::Tensor& base, const TrainingOutput& rule) {
  for (const auto& [first, list] : lists_) {
    if (first == rule.first) {
      return list.at(static_cast<std::size_t>(rule.calls.back().item));
    }
  }
  at::Tensor view = base;
  for (const ViewCall& call : rule.calls) {
    torch::jit::Stack stack{view};
    std::vector<c10::IValue> rest = arguments_of(call, returned_);
    stack.insert(stack.end(), rest.begin(), rest.end());
    call.op.callBoxed(stack);
    if (call.item < 0) {
      view = stack.front().toTensor();
      continue;
    }
    std::vector<at::Tensor> list = stack.front().toTensorVector();
    view = list.at(static_cast<std::size_t>(call.item));
    if (rule.first >= 0 && &call == &rule.calls.back()) {
      lists_.emplace_back(rule.first, std::move(list));
    }
  }
  return view;
}

at::Tensor OutputMaker::view_of(const at::Tensor& base, const TrainingOutput& rule) {
  if (!rule.calls.empty() && rule.differentiable) {
    return called_view_of(base, rule);
  }
  if (rule.from.empty()) {
    return plain_view_of(base, rule);
  }
  TrainingOutput filled = rule;
  std::size_t rank = rule.sizes.size();
  for (std::size_t i = 0; i < rule.from.size(); ++i) {
    if (rule.from[i] >= 0) {
      (i < rank ? filled.sizes[i] : i < 2 * rank ? filled.strides[i - rank] : filled.offset) = whole_number_at(returned_, rule.from[i]);
    }
  }
  return plain_view_of(base, filled);
}

at::Tensor same_part(const at::Tensor& view) {
  return at::as_strided(at::Tensor(view._base()), view.sizes(), view.strides(), view.storage_offset());
}

void make_stale(const at::Tensor& view) {
  if (auto* meta = torch::autograd::impl::get_view_autograd_meta(view); meta != nullptr && meta->has_bw_view()) {
    meta->set_attr_version(meta->get_attr_version() - 1);
  }
}

const at::Tensor& OutputMaker::view(std::size_t place) {
  using Kind = TrainingOutput::Kind;
  if (views_.empty()) {
    views_.resize(training_.outputs.size());
  }
  at::Tensor& made = views_[place];
  if (!made.defined()) {
    const TrainingOutput& rule = training_.outputs[place];
    auto index = static_cast<std::size_t>(rule.index);
    const at::Tensor& base = rule.kind == Kind::kOutputView ? view(index) : rule.kind == Kind::kRawView ? returned_.tensors[index] : inputs_[index];
    bool from_before = rule.kind == Kind::kInputView && rule.stale && base.is_view();  // autograd is not to make the node of now for the input
    made = view_of(from_before ? same_part(base) : base, rule);
    if (rule.stale) {
      make_stale(made);
    }
  }
  return made;
}

PyObject* OutputMaker::output(std::size_t place, PyObject* made) {
  const TrainingOutput& rule = training_.outputs[place];
  const std::vector<at::Tensor>& values = returned_.tensors;
  switch (rule.kind) {
    case TrainingOutput::Kind::kRaw:
      return values[rule.index].defined() ? THPVariable_Wrap(values[rule.index]) : number_at(returned_, rule.index);
    case TrainingOutput::Kind::kInput:
      return Py_NewRef(args_[rule.index]);
    case TrainingOutput::Kind::kOutput:
      return Py_NewRef(PyTuple_GET_ITEM(made, rule.index));
    case TrainingOutput::Kind::kConst:
      return Py_NewRef(rule.value);
    case TrainingOutput::Kind::kRawView:
    case TrainingOutput::Kind::kInputView:
    case TrainingOutput::Kind::kOutputView:
      return THPVariable_Wrap(view(place));
  }
  return nullptr;
}

PyObject* OutputMaker::tuple() {
  py::tuple result = py::reinterpret_steal<py::tuple>(PyTuple_New(static_cast<Py_ssize_t>(training_.returned)));
  for (std::size_t i = 0; i < training_.returned; ++i) {
    PyObject* value = output(i, result.ptr());
    if (value == nullptr) {
      throw py::error_already_set();
    }
    PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i), value);
  }
  return result.release().ptr();
}

}  // namespace dyncomp::executor
