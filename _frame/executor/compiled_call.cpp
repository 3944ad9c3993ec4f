// A backward through a compiled call: which program runs it, and what it is given.
#include "executor/compiled_call.h"

#include <algorithm>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/ops/empty_strided.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "executor/autograd.h"
#include "executor/plan_object.h"
#include "executor/text.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

namespace {

constexpr int kMostParts = 8;  // backwards of a plan for some of the inputs; where there are more, they compute all
constexpr int kMostLayouts = 4;  // backwards for gradients that are laid out in one way or another; others are copied

// As memory that compiled code can read.
at::Tensor in_memory(const at::Tensor& gradient) {
  return gradient.is_neg() || gradient.is_conj() || gradient._is_zerotensor() ? gradient.clone().resolve_conj() : gradient;
}

std::vector<int64_t> strides_of(const Layout& layout, at::IntArrayRef sizes) {
  if (!layout.ordered) {
    return layout.strides;
  }
  std::vector<int64_t> dense(layout.order.size());
  int64_t step = 1;
  for (auto dim = layout.order.rbegin(); dim != layout.order.rend(); ++dim) {
    dense[*dim] = step;
    step *= std::max<int64_t>(sizes[*dim], 1);
  }
  return dense;
}

// A gradient as the backward was compiled for: any strides may come in.
at::Tensor laid_out(const at::Tensor& gradient, const Layout& layout) {
  at::Tensor plain = in_memory(gradient);
  std::vector<int64_t> strides = strides_of(layout, plain.sizes());
  if (plain.strides() == at::IntArrayRef(strides)) {
    return plain;
  }
  return at::empty_strided(plain.sizes(), strides, plain.options()).copy_(plain);
}

// Whether the gradients are laid out as the backward was compiled for.
bool fits(const Backward& backward, const std::vector<at::Tensor>& gradients) {
  std::size_t position = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined() && gradient.strides() != at::IntArrayRef(strides_of(backward.layouts[position++], gradient.sizes()))) {
      return false;
    }
  }
  return true;
}

// Whether the layouts of the backward have memory for each element.
bool can_be_copied_to(const Backward& backward, const std::vector<at::Tensor>& gradients) {
  std::size_t position = 0;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      const Layout& layout = backward.layouts[position++];
      for (std::size_t d = 0; !layout.ordered && d < layout.strides.size(); ++d) {
        if (layout.strides[d] == 0 && gradient.sizes()[d] > 1) {
          return false;
        }
      }
    }
  }
  return true;
}

py::tuple strides_of_all(const std::vector<at::Tensor>& gradients) {
  py::list all;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      all.append(py::tuple(py::cast(gradient.strides().vec())));
    }
  }
  return py::tuple(all);
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

// As eager's message calls it: older releases of torch give the node's own name.
template <typename Node>
std::string operation_of(const Node& node) {
  if constexpr (requires { node.forward_op_name(); }) {
    return node.forward_op_name();
  } else {
    return node.name();
  }
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
    check_versions(asked.arrived, asked.wanted);
    results = run(asked, pattern, keepers);
  }
  if (asked.last) {
    use_up(keepers);
  }
  return results;
}

CompiledCall::Gradients CompiledCall::run(Asked& asked, const std::vector<bool>& pattern, const Bits& keepers) {
  if (asked.cut != nullptr) {
    return through_cut(asked);
  }
  if (at::GradMode::is_enabled()) {
    return rerun(asked, true);
  }
  // Anomaly mode names operations, and a function transform takes each apart: eager's own backward does both.
  bool watched = torch::autograd::AnomalyMode::is_enabled() && training_->repeatable;
  if (watched || std::any_of(asked.gradients.begin(), asked.gradients.end(), is_wrapped)) {
    return rerun(asked, false);
  }
  std::vector<at::Tensor> came = asked.gradients;
  for (at::Tensor& gradient : asked.gradients) {
    gradient = gradient.defined() ? in_memory(gradient) : gradient;
  }
  const Backward* backward = prepare(pattern, asked.wanted, asked.gradients);
  std::optional<Values> arguments = backward != nullptr ? unpack_saved(*backward) : std::nullopt;
  if (!arguments) {
    return rerun(asked, false);
  }
  if (asked.last) {  // then memory may go as soon as it was read, as it would operation by operation
    use_up(keepers);
  }
  std::size_t position = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // what the backward gets, what came
  for (std::size_t i = 0; i < came.size(); ++i) {
    at::Tensor gradient = std::move(asked.gradients[i]), first = std::move(came[i]);
    if (gradient.defined()) {
      arguments->tensors.push_back(laid_out(gradient, backward->layouts[position++]));
      if (const at::Tensor& given = arguments->tensors.back(); !given.is_same(first)) {
        copied.emplace_back(given, first);
      }
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

// As the version counter tells now; nothing where nobody can have written.
std::optional<uint32_t> CompiledCall::version_now(std::size_t seen) const {
  if (const Version& before = seen_versions_[seen]; before.counter.enabled()) {
    return before.counter.current_version();
  }
  const Seen& one = training_->seen[seen];
  at::Tensor input = one.input && !one.counted ? input_now(static_cast<std::size_t>(one.index)) : at::Tensor();
  return input.defined() && !input.is_inference() ? std::optional(static_cast<uint32_t>(input._version())) : std::nullopt;
}

std::string CompiledCall::origin_of(const Watched& kept) const {
  const Seen& one = training_->seen[kept.seen];
  at::Tensor input = kept.itself && one.input ? input_now(static_cast<std::size_t>(one.index)) : at::Tensor();
  if (!input.defined()) {
    return kept.origin;
  }
  auto node = input.grad_fn();
  if (!node || dynamic_cast<CompiledBackward*>(node.get()) != nullptr) {
    return kept.origin;
  }
  return "output " + std::to_string(input.output_nr()) + " of " + operation_of(*node);
}

// What eager's nodes keep must be as it was, whether our backward reads it or not.
void CompiledCall::check_versions(const Bits& arrived, const Bits& wanted) const {
  for (const Watched& one : training_->watched) {
    const Version& before = seen_versions_[one.seen];
    std::optional<uint32_t> now = version_now(one.seen);
    if (!now || *now == before.version || !one.reader.outputs.meets(arrived) || !one.reader.inputs.meets(wanted)) {
      continue;  // eager does not come to the nodes that keep it
    }
    at::IntArrayRef sizes(before.sizes.empty() ? one.sizes : before.sizes);
    std::string origin = origin_of(one);
    const char* hint = torch::autograd::AnomalyMode::is_enabled()
                           ? "the backtrace further above shows the operation that failed to compute its gradient. The variable in question was "
                             "changed in there or anywhere later. Good luck!"
                           : "enable anomaly detection to find the operation that failed to compute its gradient, with "
                             "torch.autograd.set_detect_anomaly(True, check_nan=False).";
    TORCH_CHECK(false, "one of the variables needed for gradient computation has been modified by an inplace operation: [", one.type, " ", text(sizes),
                "]", origin.empty() ? "" : ", which is " + origin + ",", " is at version ", text(*now), "; expected version ", text(before.version),
                " instead. Hint: ", hint);
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

// The compiled backward, made if it is not there; null where there can be none. One for gradients that are laid out as these are, or
// where there are too many such for any.
const Backward* CompiledCall::prepare(const std::vector<bool>& pattern, Bits wanted, const Gradients& gradients) const {
  Bits all = Bits::all(training_->requiring.size());
  bool nothing_gone = std::find(gone_.begin(), gone_.end(), true) == gone_.end();
  auto is_part = [&](const Backward& one) { return !(one.wanted == all); };
  if (covers_all(pattern, wanted)) {
    wanted = all;
  }
  uint64_t autocast = autocast_state();
  const auto& ready = training_->backwards;
  bool enough = false;
  auto find = [&]() -> const Backward* {
    int others = 0;
    const Backward* first = nullptr;
    for (const Backward& one : ready) {
      if (one.pattern == pattern && one.autocast == autocast && one.wanted == wanted) {
        if (fits(one, gradients)) {
          return &one;
        }
        first = first == nullptr && can_be_copied_to(one, gradients) ? &one : first;
        ++others;
      }
    }
    enough = others >= kMostLayouts;
    return enough ? first : nullptr;
  };
  if (const Backward* found = find()) {
    return found;
  }
  if (nothing_gone && !(wanted == all) && std::count_if(ready.begin(), ready.end(), is_part) >= kMostParts) {
    return prepare(pattern, all, gradients);
  }
  py::object part = py::none();
  if (!(wanted == all)) {
    std::vector<bool> some(training_->requiring.size());
    for (std::size_t i = 0; i < some.size(); ++i) {
      some[i] = wanted.has(i);
    }
    part = flags(some);
  }
  py::object outputs = flags(pattern), laid = enough ? py::object(py::none()) : py::object(strides_of_all(gradients));
  PyObject* arguments[] = {outputs.ptr(), part.ptr(), laid.ptr()};
  py::object made = checked(PyObject_Vectorcall(training_->prepare.get(), arguments, 3, nullptr));
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
    follow(made[1].cast<py::tuple>(), py::none());
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
