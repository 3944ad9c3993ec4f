// A backward through a compiled call: which program runs it, and what it is given.
#include "executor/compiled_call.h"

#include <algorithm>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "executor/plan_object.h"
#include "executor/text.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

namespace {

constexpr int kMostParts = 8;  // backwards of a plan for some of the inputs; where there are more, they compute all

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

// A gradient that is handed on as it is has the strides that it came with.
void as_they_came(torch::autograd::variable_list& results, const std::vector<std::pair<at::Tensor, at::Tensor>>& copied) {
  for (at::Tensor& result : results) {
    for (const auto& [given, came] : copied) {
      if (result.is_same(given)) {
        result = came;
        break;
      }
    }
  }
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

py::tuple flags(const std::vector<bool>& values) {
  py::tuple result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    result[i] = py::bool_(values[i]);
  }
  return result;
}

}  // namespace

CompiledCall::Gradients CompiledCall::compute(Asked& asked) {
  std::vector<bool> pattern(asked.gradients.size());
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    pattern[i] = asked.gradients[i].defined();
  }
  py::gil_scoped_acquire locked;
  Bits keepers = keepers_of(asked.arrived, asked.wanted);
  check_unused(keepers, asked.before);
  Gradients results(training_->requiring.size());
  if (std::find(pattern.begin(), pattern.end(), true) != pattern.end()) {
    check_outputs(asked.arrived, asked.wanted);
    results = run(asked, pattern, keepers);
  }
  if (asked.last) {
    use_up(keepers);
  }
  return results;
}

CompiledCall::Gradients CompiledCall::run(Asked& asked, const std::vector<bool>& pattern, const Bits& keepers) {
  if (at::GradMode::is_enabled()) {
    return rerun(asked, true);
  }
  // Anomaly mode names operations, and a function transform takes each apart: eager's own backward does both.
  bool watched = torch::autograd::AnomalyMode::is_enabled() && training_->repeatable;
  if (watched || std::any_of(asked.gradients.begin(), asked.gradients.end(), is_wrapped)) {
    return rerun(asked, false);
  }
  const Backward* backward = prepare(pattern, asked.wanted);
  std::optional<Values> arguments = backward != nullptr ? unpack_saved(*backward) : std::nullopt;
  if (!arguments) {
    return rerun(asked, false);
  }
  if (asked.last) {  // then memory may go as soon as it was read, as it would operation by operation
    use_up(keepers);
  }
  std::size_t position = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // what the backward gets, what came
  for (at::Tensor& gradient : asked.gradients) {
    if (gradient.defined()) {
      arguments->tensors.push_back(laid_out(gradient, backward->layouts[position++]));
      if (const at::Tensor& given = arguments->tensors.back(); !given.is_same(gradient)) {
        copied.emplace_back(given, gradient);
      }
      gradient.reset();
    }
  }
  py::object call = py::reinterpret_borrow<py::object>(backward->call.get());
  if (!is_plan(call.ptr())) {
    py::tuple wrapped = wrap_all(arguments->tensors, arguments->numbers);
    arguments.reset();
    Gradients gradients = spread(checked(PyObject_CallObject(call.ptr(), wrapped.ptr())).ptr());
    as_they_came(gradients, copied);
    return gradients;
  }
  py::gil_scoped_release unlocked;
  Gradients results = run_plan(call.ptr(), std::move(arguments->tensors), arguments->numbers);
  TORCH_CHECK(results.size() == training_->requiring.size(), "dyncomp: a backward returned other than one gradient for each input");
  as_they_came(results, copied);
  return results;
}

// Where the compiled backward does not read an output that eager's would, a write in between is an error all the same.
void CompiledCall::check_outputs(const Bits& arrived, const Bits& wanted) const {
  for (const Version& one : watched_) {
    const Watched& output = training_->watched[one.watched];
    uint32_t now = one.counter.current_version();
    if (now == one.version || !output.reader.outputs.meets(arrived) || !output.reader.inputs.meets(wanted)) {
      continue;  // eager does not come to the nodes that keep it
    }
    TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: [torch.",
                one.on_cuda ? "cuda." : "", c10::toString(one.dtype), "Tensor ", text(at::IntArrayRef(one.sizes)), "], which is ", output.origin, ", is at version ",
                text(now), "; expected version ", text(one.version),
                " instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True, check_nan=False).");
  }
}

// Whether all inputs that these outputs lead to are wanted.
bool CompiledCall::covers_all(const std::vector<bool>& pattern, const Bits& wanted) const {
  for (std::size_t k = 0; k < pattern.size(); ++k) {
    if (pattern[k] && !wanted.covers(training_->reach[k])) {
      return false;
    }
  }
  return true;
}

// The compiled backward, made if it is not there; null where there can be none.
const Backward* CompiledCall::prepare(const std::vector<bool>& pattern, Bits wanted) const {
  Bits all = Bits::all(training_->requiring.size());
  bool nothing_gone = std::find(gone_.begin(), gone_.end(), true) == gone_.end();
  auto is_part = [&](const Backward& one) { return !(one.wanted == all); };
  if (covers_all(pattern, wanted)) {
    wanted = all;
  }
  uint64_t autocast = autocast_state();
  const auto& ready = training_->backwards;
  auto find = [&]() -> const Backward* {
    for (const Backward& one : ready) {
      if (one.pattern == pattern && one.autocast == autocast && one.wanted == wanted) {
        return &one;
      }
    }
    return nullptr;
  };
  if (const Backward* found = find()) {
    return found;
  }
  if (nothing_gone && !(wanted == all) && std::count_if(ready.begin(), ready.end(), is_part) >= kMostParts) {
    return prepare(pattern, all);
  }
  py::object part = py::none();
  if (!(wanted == all)) {
    std::vector<bool> some(training_->requiring.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      some[i] = wanted.has(i);
    }
    part = flags(some);
  }
  py::tuple outputs = flags(pattern);
  PyObject* arguments[] = {outputs.ptr(), part.ptr()};
  py::object made = checked(PyObject_Vectorcall(training_->prepare.get(), arguments, 2, nullptr));
  if (made.is_none()) {
    return nullptr;
  }
  if (const Backward* other = find()) {  // another thread was quicker
    return other;
  }
  py::tuple parts = made.cast<py::tuple>();
  std::vector<bool> read = parts[2].cast<std::vector<bool>>();
  TORCH_CHECK(read.size() == training_->saved.size(), "dyncomp: a backward says of other than each saved value whether it is read");
  std::vector<Layout> layouts;
  for (py::handle one : parts[1]) {
    layouts.push_back(read_layout(one));
  }
  training_->backwards.push_back({pattern, wanted, autocast, std::move(layouts), std::move(read), SharedObject(parts[0].ptr())});
  return &training_->backwards.back();
}

// By eager's autograd through the program, which runs once more.
CompiledCall::Gradients CompiledCall::rerun(const Asked& asked, bool create_graph) {
  TORCH_CHECK(!(spent_ && holds_all()), torch::autograd::ERR_BACKWARD_TWICE);
  std::vector<int> missing;
  std::vector<at::Tensor> now = inputs_again(missing);
  std::vector<bool> wanted(training_->requiring.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = asked.wanted.has(i);
  }
  py::object kept = kept_for_rerun(missing);
  py::tuple inputs = wrap_all(now, numbers_), incoming = wrap_all(asked.gradients), places = flags(wanted);
  py::object state = wrap(generator_state_);
  PyObject *create = create_graph ? Py_True : Py_False, *retain = create_graph && !asked.last ? Py_True : Py_False;
  PyObject* arguments[] = {inputs.ptr(), incoming.ptr(), state.ptr(), create, retain, places.ptr(), kept.ptr()};
  py::tuple made = checked(PyObject_Vectorcall(training_->rerun.get(), arguments, 7, nullptr)).cast<py::tuple>();
  if (create_graph) {
    follow(made[1].cast<py::tuple>());
  }
  return spread(py::object(made[0]).ptr());
}

// Gradients of the inputs that asked for one.
CompiledCall::Gradients CompiledCall::spread(PyObject* results) const {
  std::size_t count = training_->requiring.size();
  TORCH_CHECK(PyTuple_Check(results) && static_cast<std::size_t>(PyTuple_GET_SIZE(results)) == count,
              "dyncomp: a backward returned other than one gradient for each input");
  Gradients gradients(count);
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(results, static_cast<Py_ssize_t>(i));
    if (item != Py_None) {
      gradients[i] = THPVariable_Unpack(item);
    }
  }
  return gradients;
}

}  // namespace dyncomp::executor
