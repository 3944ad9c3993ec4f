// kernel: a call of generated code over raw pointers.
#include <c10/core/TensorImpl.h>
#include <pybind11/pybind11.h>

#include "executor/opcodes.h"

namespace dyncomp::executor {

namespace {

// Where a tensor's elements start. Kernels write only memory that the plan made, so a lazily cloned input stays shared.
void* pointer_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "dyncomp: a kernel was given an undefined tensor");
  auto* impl = tensor.unsafeGetTensorImpl();
  auto* start = static_cast<char*>(const_cast<void*>(impl->unsafe_storage().data()));
  return start == nullptr ? nullptr : start + impl->storage_offset() * static_cast<int64_t>(impl->itemsize());
}

class Kernel final : public Step {
 public:
  Kernel(KernelFn kernel, Int units, Int grain, std::vector<int> slots, Ints ints)
      : kernel_(kernel), units_(units), grain_(grain), slots_(std::move(slots)), ints_(std::move(ints)) {}

  void run(Frame& frame) const override {
    c10::SmallVector<void*, 16> pointers;
    for (int slot : slots_) {
      pointers.push_back(pointer_of(frame.slots[slot]));
    }
    Ints::Buffer buffer;
    const int64_t* ints = ints_.get(frame, buffer).data();
    int64_t units = units_.get(frame), grain = grain_.get(frame);
    // A plan that is `heavy` runs without the interpreter's lock; whether a kernel of the call's sizes is, is known here.
    if (units > grain && !is_constant() && PyGILState_Check()) {
      pybind11::gil_scoped_release others_run;
      parallel_kernel(kernel_, pointers.data(), ints, units, grain);
    } else {
      parallel_kernel(kernel_, pointers.data(), ints, units, grain);
    }
  }

  bool is_constant() const { return units_.is_constant() && grain_.is_constant(); }

 private:
  KernelFn kernel_;
  Int units_;
  Int grain_;
  std::vector<int> slots_;
  Ints ints_;
};

}  // namespace

StepPtr build_kernel(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 5);
  std::size_t kernel = fields.index(builder.kernels.size(), "kernel");
  Int units = fields.number("units");
  Int grain = fields.number("grain");
  std::vector<int> slots = fields.read_many("slots");
  Ints ints = fields.words("ints");
  if (units.is_constant() && units.value < 0) {
    throw BuildError("negative units " + std::to_string(units.value));
  }
  if (grain.is_constant() && grain.value < 1) {
    throw BuildError("grain must be at least 1, not " + std::to_string(grain.value));
  }
  builder.program.heavy |= units.is_constant() && grain.is_constant() && units.value > grain.value;  // work for more than one thread
  return std::make_unique<Kernel>(builder.kernels[kernel], units, grain, std::move(slots), std::move(ints));
}

}  // namespace dyncomp::executor
