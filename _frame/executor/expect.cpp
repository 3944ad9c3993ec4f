// expect: the result of an operator has the layout that the code after it was generated for.
//
// A meta function may promise other strides than the kernel delivers, and it is the kernel that ran. Strides of dimensions
// with at most one element address nothing and may be anything.
#include <ATen/ops/empty_strided.h>

#include "executor/op_memory.h"
#include "executor/opcodes.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

bool same_strides(at::IntArrayRef sizes, at::IntArrayRef a, at::IntArrayRef b) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      return true;
    }
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

class Expect final : public Step {
 public:
  Expect(int slot, Ints sizes, Ints strides) : slot_(slot), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

  void run(Frame& frame) const override {
    at::Tensor& tensor = frame.slots[slot_];
    Ints::Buffer size_buffer, stride_buffer;
    at::IntArrayRef sizes = sizes_.get(frame, size_buffer), strides = strides_.get(frame, stride_buffer);
    TORCH_CHECK(tensor.defined() && tensor.sizes() == sizes, "dyncomp: internal error: an operator returned ",
                tensor.defined() ? "sizes " + text(tensor.sizes()) : std::string("no tensor"), " where the trace saw sizes ", text(sizes));
    if (!same_strides(sizes, tensor.strides(), strides)) {
      PooledResults pooled;
      tensor = at::empty_strided(sizes, strides, tensor.options()).copy_(tensor);
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
  if (slot < builder.program.inputs || builder.slots[slot].constant) {
    throw BuildError("slot " + std::to_string(slot) + " is an input or a constant, no result");
  }
  return std::make_unique<Expect>(slot, std::move(sizes), std::move(strides));
}

}  // namespace dyncomp::executor
