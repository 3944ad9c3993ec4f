#include "executor/program.h"

#include <chrono>

#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>

namespace dyncomp::executor {

namespace {

// More calls than this at once are served by frames that are thrown away afterwards.
constexpr std::size_t kIdleFrames = 16;

// What a captured graph has left behind: its trace saw autograd, views' bookkeeping and autocast already.
const c10::DispatchKeySet kBelow = c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

c10::Storage empty_arena() {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), c10::SymInt(0),
                                                            c10::DataPtr(nullptr, c10::Device(c10::kCPU)), nullptr, false));
}

}  // namespace

Ints::Ints(const std::vector<Int>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values_.push_back(values[i].value);
    if (!values[i].is_constant()) {
      registers_.emplace_back(i, values[i].reg);
    }
  }
}

at::IntArrayRef Ints::fill(const Frame& frame, Buffer& buffer) const {
  buffer.assign(values_.begin(), values_.end());
  for (auto [position, reg] : registers_) {
    buffer[position] = frame.registers[reg];
  }
  return buffer;
}

Frame::Frame(const Program& p)
    : program(p), slots(p.slots), registers(p.registers), numbers(p.kinds.size()), over_arena(p.scratches),
      caller_keys(c10::impl::tls_local_dispatch_key_set()) {
  for (const auto& [slot, tensor] : p.constants) {
    slots[slot] = tensor;
  }
}

void Frame::enter() {
  caller_keys = c10::impl::tls_local_dispatch_key_set();
  if (program.arena != 0) {
    open_arena(program.arena);
  }
}

void Frame::open_arena(uint64_t bytes) {
  if (bool inference = c10::InferenceMode::is_enabled(); inference != inference_) {
    // Tensors belong to the mode they were made in.
    over_arena.assign(over_arena.size(), at::Tensor());
    inference_ = inference;
  }
  if (!arena) {
    arena = empty_arena();
  }
  block_ = pool_take(bytes);
  arena_bytes = bytes;
  auto* storage = arena.unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(c10::DataPtr(block_data(block_), c10::Device(c10::kCPU)));
  storage->set_nbytes(bytes);
}

// Somebody, say a Python operator, kept a tensor over the arena beyond the call.
bool Frame::arena_escaped() const noexcept {
  std::size_t ours = 1;
  for (const auto& tensor : over_arena) {
    if (tensor.defined()) {
      if (tensor.use_count() != 1) {
        return true;
      }
      ++ours;
    }
  }
  return arena.use_count() != ours;
}

void Frame::leave() noexcept {
  stack.clear();
  auto slot = static_cast<std::size_t>(program.inputs);
  for (std::size_t i = 0; i < slot; ++i) {
    if (owns_inputs) {
      slots[i].reset();
    } else {
      slots[i].unsafeReleaseTensorImpl();
    }
  }
  // Constants stay: they are sorted by slot.
  auto constant = program.constants.begin();
  for (; slot < slots.size(); ++slot) {
    if (constant != program.constants.end() && static_cast<std::size_t>(constant->first) == slot) {
      ++constant;
    } else if (slots[slot].defined()) {
      slots[slot].reset();
    }
  }
  owns_inputs = false;
  if (block_ == nullptr) {
    return;
  }
  if (arena_escaped()) {  // then the block is theirs, and the next call starts anew
    arena.unsafeGetStorageImpl()->set_data_ptr_noswap(own_block(block_));
    over_arena.assign(over_arena.size(), at::Tensor());
    arena = c10::Storage();
  } else {
    pool_give(block_);
  }
  block_ = nullptr;
}

Program::Program() { idle_.reserve(kIdleFrames); }

std::unique_ptr<Frame> Program::take_frame() const {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto frame = std::move(idle_.back());
      idle_.pop_back();
      return frame;
    }
  }
  return std::make_unique<Frame>(*this);
}

void Program::give_frame(std::unique_ptr<Frame> frame) const noexcept {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleFrames) {
    idle_.push_back(std::move(frame));
  }
}

void Program::run(Frame& frame) const {
  c10::impl::ExcludeDispatchKeyGuard below(kBelow);
  for (const auto& step : steps) {
    step->run(frame);
  }
}

void Program::run_timed(Frame& frame, std::vector<int64_t>& spent) const {
  using Clock = std::chrono::steady_clock;
  c10::impl::ExcludeDispatchKeyGuard below(kBelow);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    auto start = Clock::now();
    steps[i]->run(frame);
    spent[i] += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  }
}

}  // namespace dyncomp::executor
