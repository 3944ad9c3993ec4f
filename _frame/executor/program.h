// A program: steps over slots (tensors) and registers (integers). It never changes once built; what one call changes
// lies in its Frame, so any number of calls, from any thread and from inside each other, may run one program.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "executor/pool.h"

namespace dyncomp::executor {

class Program;

// What a number is: of an input (kNone: it is a tensor), of a register (kNone: not written yet).
enum class NumberType : uint8_t { kNone, kInt, kTruth, kFloat };

// The state of one running call. Frames are reused: slots, stack and the tensors over the arena keep their memory.
struct Frame {
  explicit Frame(const Program& program);
  Frame(const Frame&) = delete;

  // Takes the arena's block and notes the caller's dispatch state; `leave` undoes it and clears the slots.
  void enter();
  void leave() noexcept;
  // Takes the block of this call's arena: by `enter`, or by an `arena` step where the size is known during the call only.
  void open_arena(uint64_t bytes);

  const Program& program;
  std::vector<at::Tensor> slots;     // the first `inputs` are borrowed from the caller, never counted, unless `owns_inputs`
  std::vector<int64_t> registers;    // ints, truths, and the bits of doubles
  std::vector<int64_t> numbers;      // this call's numbers among the inputs, likewise; empty if all are tensors
  std::vector<at::Tensor> over_arena;  // one a scratch step, made at its first run
  c10::Storage arena;                // its pointer is set while a call runs
  uint64_t arena_bytes = 0;          // of this call
  torch::jit::Stack stack;           // for boxed calls
  c10::impl::LocalDispatchKeySet caller_keys;

 private:
  bool arena_escaped() const noexcept;
  Block* block_ = nullptr;
  bool inference_ = false;

 public:
  bool owns_inputs = false;  // the caller gave its tensors away, so that they can go early
};

class Step {
 public:
  virtual ~Step() = default;
  virtual void run(Frame& frame) const = 0;
};

using StepPtr = std::unique_ptr<Step>;

// An integer known when the plan was made, or a register.
struct Int {
  int64_t value = 0;
  int reg = -1;
  bool is_constant() const { return reg < 0; }
  int64_t get(const Frame& frame) const { return reg < 0 ? value : frame.registers[reg]; }
};

// A list of them. `get` gives the constants themselves when there is no register among them.
class Ints {
 public:
  using Buffer = c10::SmallVector<int64_t, 8>;

  Ints() = default;
  explicit Ints(const std::vector<Int>& values);
  bool is_constant() const { return registers_.empty(); }
  std::size_t size() const { return values_.size(); }
  at::IntArrayRef constants() const { return values_; }
  at::IntArrayRef get(const Frame& frame, Buffer& buffer) const {
    return registers_.empty() ? at::IntArrayRef(values_) : fill(frame, buffer);
  }

 private:
  at::IntArrayRef fill(const Frame& frame, Buffer& buffer) const;
  std::vector<int64_t> values_;
  std::vector<std::pair<uint32_t, int>> registers_;  // (position, register)
};

class Program {
 public:
  Program();

  int inputs = 0;
  std::vector<NumberType> kinds;  // one an input; empty if all are tensors
  bool is_tensor(int input) const { return kinds.empty() || kinds[input] == NumberType::kNone; }
  int slots = 0;
  int registers = 0;
  int scratches = 0;
  uint64_t arena = 0;
  bool heavy = false;  // worth letting other Python threads run meanwhile
  std::vector<std::pair<int, at::Tensor>> constants;
  std::vector<StepPtr> steps;

  // A frame for one call, and its return. Frames of finished calls wait here for the next.
  std::unique_ptr<Frame> take_frame() const;
  void give_frame(std::unique_ptr<Frame> frame) const noexcept;

  void run(Frame& frame) const;
  // The same, with each step's nanoseconds added to `spent`, one entry a step.
  void run_timed(Frame& frame, std::vector<int64_t>& spent) const;

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> idle_;
};

// Number of elements between the first and one past the last that sizes and strides reach; 0 without elements.
inline int64_t extent(at::IntArrayRef sizes, at::IntArrayRef strides) {
  int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return 0;
    }
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

}  // namespace dyncomp::executor
