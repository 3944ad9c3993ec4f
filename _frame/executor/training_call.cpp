// One call of a training plan: the forward runs below autograd, or the program itself where the graph does not hold.
#include <algorithm>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/overlap.h"
#include "executor/plan_object.h"
#include "executor/text.h"
#include "executor/training_parts.h"

namespace dyncomp::executor {

namespace {

Values unpack(PyObject* const* objects, std::size_t count) {
  Values values;
  values.tensors.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (THPVariable_Check(objects[i])) [[likely]] {
      values.tensors[i] = THPVariable_Unpack(objects[i]);
      continue;
    }
    PlacedNumber number = number_of(static_cast<int>(i), objects[i]);
    TORCH_CHECK_TYPE(number.kind != NumberType::kNone, "input or value ", text(i), " of a training plan must be a tensor or a number, not ",
                     Py_TYPE(objects[i])->tp_name);
    values.numbers.push_back(number);
  }
  return values;
}

bool is_recorded(const Training& training, const std::vector<at::Tensor>& inputs) {
  if (!at::GradMode::is_enabled() || training.differentiable.empty()) {
    return false;
  }
  for (int index : training.requiring) {
    if (inputs[index].requires_grad()) {
      return true;
    }
  }
  return false;
}

// The graph was made for inputs that share no memory with one that it writes.
bool holds_no_longer(const Training& training, const std::vector<at::Tensor>& inputs) {
  if (!training.writes || inputs.size() == 1) {
    return false;
  }
  return shares_written_memory(inputs, training.written);
}

// Whether autograd allows the writes in place; where it does not, the program itself raises at the right place.
bool may_be_written(const Training& training, const std::vector<at::Tensor>& inputs) {
  for (int target : training.rebased) {
    if (target < 0) {
      continue;
    }
    try {
      torch::autograd::check_inplace(inputs[target], true);
    } catch (const c10::Error&) {
      return false;
    }
  }
  return true;
}

// The inputs that the call writes and that are views: to autograd such a write is one to their base.
std::vector<int> written_views(const Training& training, const std::vector<at::Tensor>& inputs) {
  std::vector<int> found;
  for (int index : training.may_be_viewed) {
    const at::Tensor& input = inputs[index];
    if (input.is_view() && (training.moved[index] || (input.requires_grad() && !input.is_leaf()))) {
      found.push_back(index);
    }
  }
  return found;
}

// What runs where these inputs are such views.
py::object variant_for(const Training& training, const std::vector<int>& viewed) {
  auto find = [&] {
    return std::find_if(training.variants.begin(), training.variants.end(), [&](const auto& one) { return one.first == viewed; });
  };
  if (auto known = find(); known != training.variants.end()) {
    return py::reinterpret_borrow<py::object>(known->second.get());
  }
  py::object given = py::tuple(py::cast(viewed));
  PyObject* arguments[] = {given.ptr()};
  PyObject* made = PyObject_Vectorcall(training.for_views.get(), arguments, 1, nullptr);
  if (made == nullptr) {
    throw py::error_already_set();
  }
  py::object owned = py::reinterpret_steal<py::object>(made);
  if (find() == training.variants.end()) {  // another thread may have been here meanwhile
    training.variants.emplace_back(viewed, SharedObject(owned.ptr()));
  }
  return owned;
}

PyObject* run_eager(PyObject* original, PyObject* const* args, std::size_t count) {
  PyObject* result = PyObject_Vectorcall(original, args, count, nullptr);
  if (result == nullptr || PyTuple_Check(result)) {
    return result;
  }
  py::object owned = py::reinterpret_steal<py::object>(result);
  return PyList_Check(result) ? PyList_AsTuple(result) : PyTuple_Pack(1, result);
}

// Inputs as they are before the call writes them, where running it again needs that; undefined where it does not.
std::vector<at::Tensor> originals_of(const Training& training, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> originals(inputs.size());
  at::AutoDispatchBelowADInplaceOrView below;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (training.originals[i] && inputs[i].defined()) {
      originals[i] = at::empty_strided(inputs[i].sizes(), inputs[i].strides(), inputs[i].options());
      originals[i].copy_(inputs[i]);
    }
  }
  return originals;
}

at::Tensor generator_state() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

Values run_forward(const Training& training, PyObject* const* args, std::size_t count) {
  at::AutoGradMode off(false);
  py::object forward = py::reinterpret_borrow<py::object>(training.forward.get());
  if (is_plan(forward.ptr())) {
    Values values;
    values.tensors = run_plan(forward.ptr(), args, count, values.numbers);
    return values;
  }
  PyObject* returned = PyObject_Vectorcall(forward.ptr(), args, count, nullptr);
  if (returned == nullptr) {
    throw py::error_already_set();
  }
  py::object owned = py::reinterpret_steal<py::object>(returned);
  TORCH_CHECK_TYPE(PyTuple_Check(returned), "the forward of a training plan must return a tuple");
  return unpack(PySequence_Fast_ITEMS(returned), static_cast<std::size_t>(PyTuple_GET_SIZE(returned)));
}

}  // namespace

PyObject* call_training(const TrainingPtr& training, PyObject* const* args, std::size_t count) {
  TORCH_CHECK_TYPE(count == static_cast<std::size_t>(training->inputs), "a training plan with ", text(training->inputs), " inputs was called with ", text(count));
  Values given = unpack(args, count);
  const std::vector<at::Tensor>& inputs = given.tensors;
  if (holds_no_longer(*training, inputs)) {
    return run_eager(training->original.get(), args, count);
  }
  bool recorded = is_recorded(*training, inputs);
  if (recorded && training->rebases && !may_be_written(*training, inputs)) {
    return run_eager(training->original.get(), args, count);
  }
  if (recorded && !training->may_be_viewed.empty()) {
    if (std::vector<int> viewed = written_views(*training, inputs); viewed != training->viewed) {
      return run_eager(variant_for(*training, viewed).ptr(), args, count);
    }
  }
  at::Tensor state = recorded && training->draws ? generator_state() : at::Tensor();
  std::vector<at::Tensor> originals = recorded && training->copies ? originals_of(*training, inputs) : std::vector<at::Tensor>();
  std::vector<torch::autograd::Edge> early = recorded ? places_now(*training, inputs) : std::vector<torch::autograd::Edge>();
  Values values = run_forward(*training, args, count);
  OutputMaker outputs(*training, args, inputs, values);
  if (recorded) {
    give_history(training, given, values.tensors, outputs, std::move(early), std::move(state), std::move(originals));
  } else if (training->rebases) {
    for (int index : training->differentiable) {
      if (int target = training->rebased[index]; target >= 0) {
        inputs[target].copy_(values.tensors[index]);
        count_writes(inputs[target], training->times[target]);
      }
    }
  }
  return outputs.tuple();
}

}  // namespace dyncomp::executor
