// What a call keeps for its backwards, and when it goes: as in eager, where each operation gives up what it keeps once a backward
// has gone through it, and where what no result leads to any more goes at once.
#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/variable.h>

#include "executor/compiled_call.h"
#include "executor/text.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

void CompiledCall::keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state, std::vector<at::Tensor> originals) {
  const std::vector<at::Tensor>& inputs = given.tensors;
  kept_ = true;
  numbers_ = given.numbers;
  gone_.resize(training_->saved.size());
  saved_.reserve(training_->saved.size());
  for (const SavedValue& one : training_->saved) {
    if (one.input) {
      saved_.emplace_back(inputs[one.index], false);
      continue;
    }
    // Memory that an output shows is kept without its history, which leads back here, but under its version.
    const at::Tensor& value = values[one.index];
    saved_.emplace_back(value.is_view() || value.grad_fn() ? value.detach() : value, false);
  }
  seen_versions_.reserve(training_->seen.size());
  for (const Seen& one : training_->seen) {
    const at::Tensor& tensor = one.input ? inputs[one.index] : values[one.index];
    if (!tensor.defined() || tensor.is_inference()) {
      seen_versions_.emplace_back();
      continue;
    }
    const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
    seen_versions_.push_back({one.counted ? counter : c10::VariableVersion(c10::VariableVersion::DISABLED), counter.current_version(),
                              one.sized ? tensor.sizes().vec() : std::vector<int64_t>()});
  }
  generator_state_ = std::move(generator_state);
  originals_ = std::move(originals);
  inputs_.resize(inputs.size());
  seen_.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& input = inputs[i];
    if (training_->held[i] && !training_->moved[i]) {  // an input that knows its nodes must not be known to it
      inputs_[i] = input;
    }
    if (input.defined()) {
      seen_[i].emplace(input.getIntrusivePtr());
    }
    versions_.push_back(!input.defined() || input.is_inference() ? 0 : input._version());
  }
}

void CompiledCall::end_output(int place) {
  if (training_->single || !Py_IsInitialized()) {
    return;  // with its only output a call ends
  }
  py::gil_scoped_acquire locked;
  set_entry(place, nullptr);
  ended_.add(static_cast<std::size_t>(place));
  free_what_nothing_needs();
}

// The operations of eager's graph that keep something, on the way from these outputs to these inputs.
Bits CompiledCall::keepers_of(const Bits& outputs, const Bits& inputs) const {
  std::size_t count = training_->keepers.size();
  Bits found(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (training_->keepers[i].outputs.meets(outputs) && training_->keepers[i].inputs.meets(inputs)) {
      found.add(i);
    }
  }
  return found;
}

void CompiledCall::check_unused(const Bits& keepers, const Bits& before) const {
  Bits used = used_;
  used.remove(before);
  TORCH_CHECK(!used.meets(keepers), torch::autograd::ERR_BACKWARD_TWICE);
}

void CompiledCall::use_up(const Bits& keepers) {
  used_.add(keepers);
  free_what_nothing_needs();
}

void CompiledCall::release(const Bits& outputs, const Bits& inputs) { use_up(keepers_of(outputs, inputs)); }

// By saved value, whether no backward that may come reads it.
std::vector<bool> CompiledCall::unneeded() const {
  std::size_t outputs = training_->differentiable.size(), values = training_->saved.size();
  std::vector<Bits> open(outputs);  // by output, the inputs that a backward may still go to
  for (std::size_t k = 0; k < outputs; ++k) {
    if (ended_.has(k)) {
      continue;
    }
    open[k] = training_->reach[k];
    for (std::size_t i = 0; !used_.empty() && i < training_->keepers.size(); ++i) {
      if (used_.has(i) && training_->keepers[i].outputs.has(k)) {
        open[k].remove(training_->keepers[i].inputs);
      }
    }
  }
  std::vector<bool> result(values);
  for (std::size_t i = 0; i < values; ++i) {
    bool needed = false;
    for (const Keeper& reader : training_->readers[i]) {
      for (std::size_t k = 0; k < outputs && !needed; ++k) {
        needed = !ended_.has(k) && reader.outputs.has(k) && open[k].meets(reader.inputs);
      }
    }
    result[i] = !needed;
  }
  return result;
}

// Whether each output has ended, or has had a backward through all that keeps values behind it.
bool CompiledCall::is_spent() const {
  for (std::size_t k = 0; k < training_->differentiable.size(); ++k) {
    if (ended_.has(k)) {
      continue;
    }
    bool any = false;
    for (std::size_t i = 0; i < training_->keepers.size(); ++i) {
      if (training_->keepers[i].outputs.has(k)) {
        any = true;
        if (!used_.has(i)) {
          return false;
        }
      }
    }
    if (!any) {
      return false;
    }
  }
  return true;
}

void CompiledCall::free_what_nothing_needs() {
  if (!kept_) {
    return;
  }
  if (reading_ != 0) {
    free_later_ = true;
    return;
  }
  std::size_t keepers = training_->keepers.size();
  bool all_used = keepers != 0 && used_ == Bits::all(keepers);
  bool spent = all_used || is_spent();
  if (!spent && used_.empty() && ended_.empty()) {
    return;
  }
  std::vector<bool> gone = all_used ? training_->last_needs : unneeded();
  if (all_used) {
    gone.flip();
  }
  std::vector<torch::autograd::SavedVariable> dead;  // it goes last: what it ends may come back here
  std::vector<at::Tensor> inputs;
  std::vector<torch::autograd::Edge> places;
  bool some_left = false;
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    if (gone[i] && !gone_[i]) {
      dead.push_back(std::exchange(saved_[i], {}));
      gone_[i] = true;
    }
    some_left = some_left || !gone_[i];
  }
  if (spent) {
    spent_ = true;
    inputs = std::exchange(inputs_, std::vector<at::Tensor>(inputs_.size()));
    originals_.clear();  // memory of this call alone
    generator_state_.reset();
    places = std::exchange(places_, {});
    kept_ = some_left;
  }
}

// Nothing can be run again once what is held is gone.
bool CompiledCall::holds_all() const {
  const std::vector<bool>& held = training_->held;
  return !held.empty() && std::find(held.begin(), held.end(), false) == held.end();
}

// As somebody still has it, whatever was written to it since; undefined where nobody does.
at::Tensor CompiledCall::input_now(std::size_t index) const {
  if (inputs_[index].defined() || !seen_[index]) {
    return inputs_[index];
  }
  auto alive = seen_[index]->lock();
  return alive ? at::Tensor(std::move(alive)) : at::Tensor();
}

std::vector<at::Tensor> CompiledCall::inputs_again(std::vector<int>& missing) const {
  std::vector<at::Tensor> inputs;
  std::vector<int> apart;  // tensors that have no history yet
  const std::vector<int>& viewed = training_->viewed;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (!originals_.empty() && originals_[i].defined()) {
      inputs.push_back(originals_[i].detach());
      apart.push_back(static_cast<int>(i));
      continue;
    }
    at::Tensor input = input_now(i);
    bool changed = input.defined() && !training_->written[i] && !input.is_inference() && input._version() != versions_[i];
    if (changed || training_->moved[i] || (seen_[i] && !input.defined())) {
      // What describes a tensor outlives its memory, as long as somebody refers to it.
      const c10::TensorImpl* before = seen_[i]->_unsafe_get_target();
      int64_t span = before->storage_offset() + 1;
      for (int64_t d = 0; d < before->dim(); ++d) {
        span += (before->sizes()[d] - 1) * before->strides()[d];
      }
      auto options = at::TensorOptions().dtype(before->dtype()).device(before->device());
      at::AutoDispatchBelowADInplaceOrView below;
      input = at::zeros({std::max<int64_t>(span, 0)}, options);
      if (before->numel() != 0) {
        input = input.as_strided(before->sizes(), before->strides(), before->storage_offset());
      } else {
        input = at::empty_strided(before->sizes(), before->strides(), options);
      }
      missing.push_back(static_cast<int>(i));
      apart.push_back(static_cast<int>(i));
    }
    bool is_apart = !apart.empty() && apart.back() == static_cast<int>(i);
    if (!is_apart && std::find(viewed.begin(), viewed.end(), static_cast<int>(i)) != viewed.end()) {
      input = input.detach();  // its history is another since
      apart.push_back(static_cast<int>(i));
    }
    inputs.push_back(std::move(input));
  }
  for (int index : viewed) {
    inputs.push_back(inputs[index].detach());
    inputs.push_back(inputs[index].detach());
  }
  for (std::size_t place = 0; place < training_->requiring.size(); ++place) {
    int index = training_->requiring[place];
    if (std::find(apart.begin(), apart.end(), index) == apart.end()) {
      continue;
    }
    auto number = inputs_.size() + 2 * static_cast<std::size_t>(std::find(viewed.begin(), viewed.end(), index) - viewed.begin());
    Side side = training_->sides[place];
    at::Tensor& input = inputs[side == Side::kOwn ? static_cast<std::size_t>(index) : side == Side::kBase ? number : number + 1];
    if (torch::autograd::Edge edge = edge_to(place); edge.function) {
      torch::autograd::impl::set_gradient_edge(input, std::move(edge));
    } else {
      input.requires_grad_();
    }
  }
  return inputs;
}

// Undefined where it was written since: what eager keeps of it was checked, where this backward comes to it.
at::Tensor CompiledCall::as_saved(std::size_t number) const {
  try {
    return saved_[number].unpack();
  } catch (const c10::Error&) {
    return {};
  }
}

// (places of stand-ins, saved values, keepers that are used up), or None where the inputs are what they were.
py::object CompiledCall::kept_for_rerun(const std::vector<int>& missing) {
  if (missing.empty() && training_->repeatable && used_.empty()) {
    return py::none();
  }
  Reading reading(*this);
  std::vector<at::Tensor> saved;
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    saved.push_back(gone_[i] ? at::Tensor() : as_saved(i));
  }
  py::list used;
  for (std::size_t i = 0; i < training_->keepers.size(); ++i) {
    if (used_.has(i)) {
      used.append(i);
    }
  }
  return py::make_tuple(py::tuple(py::cast(missing)), wrap_all(saved), py::tuple(used));
}

py::tuple CompiledCall::saved_objects() {
  TORCH_CHECK(used_.empty(), torch::autograd::ERR_BACKWARD_TWICE);
  Backward all{{}, {}, 0, {}, std::vector<bool>(saved_.size(), true), {}};
  std::optional<Values> values = unpack_saved(all);
  TORCH_CHECK(values, torch::autograd::ERR_BACKWARD_TWICE);
  return wrap_all(values->tensors, values->numbers);
}

bool CompiledCall::has_saved_hooks() const {
  return std::any_of(saved_.begin(), saved_.end(), [](const auto& saved) { return saved.has_hooks(); });
}

CompiledCall::Reading::~Reading() {
  if (--call.reading_ == 0 && std::exchange(call.free_later_, false)) {
    call.free_what_nothing_needs();
  }
}

// Checked to be as it was, but for what this backward does not read: eager would not come to the operations that kept it.
// Nothing if it reads what is gone.
std::optional<Values> CompiledCall::unpack_saved(const Backward& backward) {
  Reading reading(*this);
  std::vector<at::Tensor> tensors;
  tensors.reserve(saved_.size());
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const SavedValue& saved = training_->saved[i];
    at::Tensor input = !backward.read[i] && saved.input && !inputs_.empty() ? input_now(saved.index) : at::Tensor();
    if (input.defined()) {
      tensors.push_back(std::move(input));
    } else if (!backward.read[i] && !training_->sized) {
      tensors.emplace_back();
    } else if (gone_[i]) {
      return std::nullopt;
    } else {
      tensors.push_back(saved_[i].unpack());
    }
  }
  return with_numbers(std::move(tensors));
}

// With the numbers among the inputs that are kept.
Values CompiledCall::with_numbers(std::vector<at::Tensor> tensors) const {
  Values values{std::move(tensors), {}};
  for (const PlacedNumber& number : numbers_) {
    for (std::size_t i = 0; i < training_->saved.size(); ++i) {
      if (const SavedValue& saved = training_->saved[i]; saved.input && saved.index == number.place) {
        values.numbers.push_back({static_cast<int>(i), number.kind, number.bits});
      }
    }
  }
  return values;
}

}  // namespace dyncomp::executor
