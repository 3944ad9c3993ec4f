#include "executor/autograd.h"

#include <algorithm>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include "executor/plan_object.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::Variable;
using torch::autograd::variable_list;

[[noreturn]] void throw_python() {
  python_error error;
  error.persist();
  throw std::move(error);
}

py::object checked(PyObject* owned) {
  if (owned == nullptr) {
    throw_python();
  }
  return py::reinterpret_steal<py::object>(owned);
}

py::object wrap(const at::Tensor& tensor) {
  return tensor.defined() ? checked(THPVariable_Wrap(tensor)) : py::none();
}

py::tuple wrap_all(const variable_list& tensors, const std::vector<PlacedNumber>& numbers = {}) {
  py::tuple result(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    result[i] = wrap(tensors[i]);
  }
  for (const PlacedNumber& number : numbers) {
    result[number.place] = checked(make_number(number.kind, number.bits));
  }
  return result;
}

// A gradient as the backward was compiled for: any strides may come in.
at::Tensor laid_out(const at::Tensor& gradient, const Layout& layout) {
  at::Tensor plain = gradient.is_neg() || gradient.is_conj() || gradient._is_zerotensor() ? gradient.clone().resolve_conj() : gradient;
  std::vector<int64_t> dense;
  if (layout.ordered) {
    dense.resize(layout.order.size());
    int64_t step = 1;
    for (auto dim = layout.order.rbegin(); dim != layout.order.rend(); ++dim) {
      dense[*dim] = step;
      step *= std::max<int64_t>(plain.size(*dim), 1);
    }
  }
  at::IntArrayRef strides(layout.ordered ? dense : layout.strides);
  if (plain.strides() == strides) {
    return plain;
  }
  return at::empty_strided(plain.sizes(), strides, plain.options()).copy_(plain);
}

Layout read_layout(py::handle given) {
  py::sequence items = py::cast<py::sequence>(given);
  if (items.size() == 2 && py::isinstance<py::str>(items[0])) {
    return {{}, items[1].cast<std::vector<int64_t>>(), true};
  }
  return {items.cast<std::vector<int64_t>>(), {}, false};
}

// What autocast does to the operations of a backward that runs now; 0 where it is off.
uint64_t autocast_state() {
  uint64_t state = 0;
  for (at::DeviceType device : {at::kCPU, at::kCUDA}) {
    uint64_t one = at::autocast::is_autocast_enabled(device) ? 1 + static_cast<uint64_t>(at::autocast::get_autocast_dtype(device)) : 0;
    state = state << 16 | one;
  }
  return state;
}

// Batched by vmap, say, or no strided tensor: compiled code cannot read its memory.
bool is_wrapped(const at::Tensor& gradient) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::Batched,
                                           c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize, c10::DispatchKey::Python});
  return gradient.defined() && (gradient.layout() != at::kStrided || gradient.key_set().has_any(kWrappers));
}

std::vector<bool> pattern_of(const variable_list& gradients) {
  std::vector<bool> pattern(gradients.size());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    pattern[i] = gradients[i].defined();
  }
  return pattern;
}

}  // namespace

SharedObject::~SharedObject() {
  if (object_ != nullptr && Py_IsInitialized()) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object_);
    PyGILState_Release(state);
  }
}

void CompiledBackward::keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state) {
  const std::vector<at::Tensor>& inputs = given.tensors;
  numbers_ = given.numbers;
  saved_.reserve(training_->saved.size());
  for (const SavedValue& one : training_->saved) {
    if (one.input) {
      saved_.emplace_back(inputs[one.index], false);
      continue;
    }
    // Memory that an output shows is kept without its history, which leads back here, but under its version.
    const at::Tensor& value = values[one.index];
    bool is_output = value.grad_fn().get() == this;
    saved_.emplace_back(value.is_view() ? value.detach() : value, is_output);
  }
  for (int index : training_->watched) {
    if (const at::Tensor& value = values[index]; value.grad_fn().get() == this) {
      watched_.push_back({value.unsafeGetTensorImpl()->version_counter(), value._version(), value.output_nr()});
    }
  }
  generator_state_ = std::move(generator_state);
  if (training_->rebases) {  // such a call cannot be repeated, and an input that knows this node must not be known to it
    return;
  }
  inputs_ = inputs;
  for (const at::Tensor& input : inputs) {
    versions_.push_back(!input.defined() || input.is_inference() ? 0 : input._version());
  }
}

void CompiledBackward::release_variables() {
  std::lock_guard lock(mutex_);
  if (!is_given_up()) {
    return;
  }
  released_ = true;
  saved_.clear();
  inputs_.clear();
  generator_state_.reset();
}

// Notes what the last backward used up; true if no output is left for which something must be kept.
bool CompiledBackward::is_given_up() {
  if (asked_.empty()) {
    return true;
  }
  ran_.resize(asked_.size());
  bool keeps = false;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    ran_[i] = ran_[i] || asked_[i];
  }
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    const std::vector<bool>& tied = training_->tied[i];
    if (tied[i]) {
      keeps = true;
      bool gone = false;
      for (std::size_t k = 0; k < ran_.size(); ++k) {
        gone = gone || (ran_[k] && tied[k]);
      }
      if (!gone) {
        return false;
      }
    }
  }
  return keeps;
}

void CompiledBackward::check_not_released() {
  std::lock_guard lock(mutex_);
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
}

// Where the compiled backward does not read an output that eager's would, a write in between is an error all the same.
void CompiledBackward::check_outputs(const std::vector<bool>& pattern) const {
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (training_->likely[i] && !pattern[i]) {
      return;  // eager does not come to all of these nodes
    }
  }
  for (const Watched& one : watched_) {
    uint32_t now = one.counter.current_version();
    if (now == one.version) {
      continue;
    }
    const auto& meta = input_metadata(one.output);
    TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.",
                meta.device().is_cuda() ? "cuda." : "", c10::toString(meta.options().dtype().toScalarType()), "Tensor ",
                text(meta.shape_as_dim_vector()), "], which is output ", text(one.output), " of Compiled, is at version ", text(now),
                "; expected version ", text(one.version),
                " instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True, check_nan=False).");
  }
}

// Checked to be as it was, but for what this backward does not read: eager would not come to the operations that kept it.
Values CompiledBackward::unpack_saved(const Backward* backward) {
  Values values;
  values.tensors.reserve(saved_.size());
  auto self = getptr();
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const SavedValue& saved = training_->saved[i];
    bool unread = backward != nullptr && !backward->read[i] && saved.input && !inputs_.empty();
    values.tensors.push_back(unread ? inputs_[saved.index] : saved_[i].unpack(self));
  }
  for (const PlacedNumber& number : numbers_) {
    for (std::size_t i = 0; i < training_->saved.size(); ++i) {
      if (const SavedValue& saved = training_->saved[i]; saved.input && saved.index == number.place) {
        values.numbers.push_back({static_cast<int>(i), number.kind, number.bits});
      }
    }
  }
  return values;
}

py::tuple CompiledBackward::saved_objects() {
  check_not_released();
  asked_.clear();
  Values values = unpack_saved();
  return wrap_all(values.tensors, values.numbers);
}

bool CompiledBackward::has_saved_hooks() const {
  return std::any_of(saved_.begin(), saved_.end(), [](const auto& saved) { return saved.has_hooks(); });
}

variable_list CompiledBackward::apply(variable_list&& gradients) {
  for (auto& [place, edge] : std::exchange(left_out_, {})) {  // by a backward that ended with an error
    next_edges_.at(place) = std::move(edge);
  }
  std::vector<bool> pattern = pattern_of(gradients);
  variable_list results = compute(pattern, gradients);
  leave_out_unreached(pattern, results);
  return results;
}

variable_list CompiledBackward::compute(const std::vector<bool>& pattern, variable_list& gradients) {
  check_not_released();
  asked_.clear();
  if (std::find(pattern.begin(), pattern.end(), true) == pattern.end()) {
    return variable_list(num_outputs());
  }
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    for (std::size_t k = 0; k < ran_.size(); ++k) {
      TORCH_CHECK(!(pattern[i] && ran_[k] && training_->tied[i][k]), torch::autograd::ERR_BACKWARD_TWICE);
    }
  }
  asked_ = pattern;
  check_outputs(pattern);
  py::gil_scoped_acquire locked;
  if (at::GradMode::is_enabled()) {
    return rerun(gradients, true);
  }
  // Anomaly mode names operations, and a function transform takes each apart: eager's own backward does both.
  if (torch::autograd::AnomalyMode::is_enabled() ? training_->repeatable : std::any_of(gradients.begin(), gradients.end(), is_wrapped)) {
    return rerun(gradients, false);
  }
  uint64_t autocast = autocast_state();
  const Backward* backward = find(pattern, autocast);
  if (backward == nullptr) {
    backward = prepare(pattern, autocast);
  }
  return backward != nullptr ? run(*backward, gradients) : rerun(gradients, false);
}

const Backward* CompiledBackward::find(const std::vector<bool>& pattern, uint64_t autocast) const {
  for (const Backward& backward : training_->backwards) {
    if (backward.pattern == pattern && backward.autocast == autocast) {
      return &backward;
    }
  }
  return nullptr;
}

const Backward* CompiledBackward::prepare(const std::vector<bool>& pattern, uint64_t autocast) {
  py::tuple asked(pattern.size());
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    asked[i] = py::bool_(pattern[i]);
  }
  py::object made = checked(PyObject_CallOneArg(training_->prepare.get(), asked.ptr()));
  if (made.is_none()) {
    return nullptr;
  }
  if (const Backward* other = find(pattern, autocast)) {  // another thread was quicker
    return other;
  }
  py::tuple pair = made.cast<py::tuple>();
  std::vector<bool> read = pair[2].cast<std::vector<bool>>();
  TORCH_CHECK(read.size() == saved_.size(), "dyncomp: a backward says of other than each saved value whether it is read");
  std::vector<Layout> layouts;
  for (py::handle one : pair[1]) {
    layouts.push_back(read_layout(one));
  }
  training_->backwards.push_back({pattern, autocast, std::move(layouts), std::move(read), SharedObject(pair[0].ptr())});
  return &training_->backwards.back();
}

variable_list CompiledBackward::run(const Backward& backward, variable_list& gradients) {
  py::object call = py::reinterpret_borrow<py::object>(backward.call.get());
  Values arguments = unpack_saved(&backward);
  if (std::exchange(last_run_, false)) {  // then memory may go as soon as it was read, as it would operation by operation
    release_variables();
  }
  std::size_t position = 0;
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      arguments.tensors.push_back(laid_out(gradient, backward.layouts[position++]));
      gradient.reset();
    }
  }
  if (!is_plan(call.ptr())) {
    return call_python(call.ptr(), arguments);
  }
  py::gil_scoped_release unlocked;
  variable_list results = run_plan(call.ptr(), std::move(arguments.tensors), arguments.numbers);
  TORCH_CHECK(results.size() == num_outputs(), "dyncomp: a backward returned other than one gradient for each input");
  return results;
}

variable_list CompiledBackward::call_python(PyObject* call, const Values& arguments) const {
  py::tuple wrapped = wrap_all(arguments.tensors, arguments.numbers);
  return spread(checked(PyObject_CallObject(call, wrapped.ptr())).ptr());
}

variable_list CompiledBackward::rerun(const variable_list& gradients, bool create_graph) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    bool changed = inputs_[i].defined() && !training_->written[i] && !inputs_[i].is_inference() && inputs_[i]._version() != versions_[i];
    TORCH_CHECK(!changed, "one of the variables needed for gradient computation has been modified by an inplace operation: input ", text(i),
                " of a compiled function is at version ", text(inputs_[i]._version()), "; expected version ", text(versions_[i]), " instead");
  }
  py::tuple inputs = wrap_all(inputs_, numbers_), incoming = wrap_all(gradients);
  py::object state = wrap(generator_state_);
  PyObject* arguments[] = {inputs.ptr(), incoming.ptr(), state.ptr(), create_graph ? Py_True : Py_False};
  py::object results = checked(PyObject_Vectorcall(training_->rerun.get(), arguments, 4, nullptr));
  return spread(results.ptr());
}

// Gradients of the inputs that asked for one.
variable_list CompiledBackward::spread(PyObject* results) const {
  TORCH_CHECK(PyTuple_Check(results) && static_cast<std::size_t>(PyTuple_GET_SIZE(results)) == num_outputs(),
              "dyncomp: a backward returned other than one gradient for each input");
  variable_list gradients(num_outputs());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    PyObject* item = PyTuple_GET_ITEM(results, static_cast<Py_ssize_t>(i));
    if (item != Py_None) {
      gradients[i] = THPVariable_Unpack(item);
    }
  }
  return gradients;
}

}  // namespace dyncomp::executor
