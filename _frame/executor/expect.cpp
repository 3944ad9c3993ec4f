// expect: a call's result must have the layout that kernels and views were made for.
//
// Sizes must agree. Strides may differ where an operator's layout is not known beforehand: then the elements move to the
// layout that the plan expects.
#include <ATen/ops/empty_strided.h>

#include "executor/opcodes.h"

namespace dyncomp::executor {

namespace {

class Expect final : public Step {
 public:
  Expect(int slot, Ints sizes, Ints strides) : slot_(slot), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

  void run(Frame& frame) const override {
    Ints::Buffer size_buffer, stride_buffer;
    at::Tensor& tensor = frame.slots[slot_];
    at::IntArrayRef sizes = sizes_.get(frame, size_buffer), strides = strides_.get(frame, stride_buffer);
    TORCH_INTERNAL_ASSERT(tensor.sizes() == sizes, "dyncomp: an operator returned sizes ", tensor.sizes(), " where ", sizes,
                          " were expected");
    for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] > 1 && tensor.stride(dim) != strides[dim]) {
        tensor = at::empty_strided(sizes, strides, tensor.options()).copy_(tensor);
        return;
      }
    }
  }

 private:
  int slot_;
  Ints sizes_, strides_;
};

}  // namespace

StepPtr build_expect(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 3);
  int slot = fields.read("slot");
  Ints sizes = fields.ints("sizes"), strides = fields.ints("strides");
  check_shape(sizes, strides);
  return std::make_unique<Expect>(slot, std::move(sizes), std::move(strides));
}

}  // namespace dyncomp::executor
