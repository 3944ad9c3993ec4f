// What a call keeps for its backwards, and when it goes: as in eager, where each operation gives up what it keeps once a backward
// has gone through it, and where what no result leads to any more goes at once.
#include <algorithm>
#include <utility>

#include "executor/compiled_call.h"
#include "executor/wrap.h"

namespace dyncomp::executor {

void CompiledCall::keep(const Values& given, const std::vector<at::Tensor>& values, at::Tensor generator_state) {
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
  for (std::size_t i = 0; i < training_->watched.size(); ++i) {
    if (const at::Tensor& value = values[training_->watched[i].raw]; value.grad_fn()) {
      watched_.push_back({value.unsafeGetTensorImpl()->version_counter(), static_cast<uint32_t>(value._version()), value.sizes().vec(),
                          value.scalar_type(), value.is_cuda(), i});
    }
  }
  generator_state_ = std::move(generator_state);
  if (training_->rebases) {  // such a call cannot be repeated, and an input that knows its nodes must not be known to it
    return;
  }
  inputs_ = inputs;
  for (const at::Tensor& input : inputs) {
    versions_.push_back(!input.defined() || input.is_inference() ? 0 : input._version());
  }
}

void CompiledCall::end_output(int place) {
  if (training_->differentiable.size() == 1 || !Py_IsInitialized()) {
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
    const Keeper& reader = training_->readers[i];
    bool needed = false;
    for (std::size_t k = 0; k < outputs && !needed; ++k) {
      needed = !ended_.has(k) && reader.outputs.has(k) && open[k].meets(reader.inputs);
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
  bool some_left = false;
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    if (gone[i] && !gone_[i]) {
      dead.push_back(std::exchange(saved_[i], {}));
      gone_[i] = true;
    }
    some_left = some_left || !gone_[i];
  }
  if (spent) {
    inputs = std::exchange(inputs_, {});
    generator_state_.reset();
    kept_ = some_left;
  }
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

// Checked to be as it was, but for what this backward does not read: eager would not come to the operations that kept it.
// Nothing if it reads what is gone.
std::optional<Values> CompiledCall::unpack_saved(const Backward& backward) {
  struct Reading {
    CompiledCall& call;
    explicit Reading(CompiledCall& call) : call(call) { ++call.reading_; }
    ~Reading() {
      if (--call.reading_ == 0 && std::exchange(call.free_later_, false)) {
        call.free_what_nothing_needs();
      }
    }
  } reading(*this);
  std::vector<at::Tensor> tensors;
  tensors.reserve(saved_.size());
  for (std::size_t i = 0; i < saved_.size(); ++i) {
    const SavedValue& saved = training_->saved[i];
    if (!backward.read[i] && saved.input && !inputs_.empty()) {
      tensors.push_back(inputs_[saved.index]);
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
