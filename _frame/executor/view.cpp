// view, view_rel, detach: other shapes over the same memory.
//
// A view that stays inside the plan is a bare TensorImpl. One that leaves it is made by `as_strided` in the caller's state
// (below autograd only), so that it shares its base's version counter and knows its base, as eager's views do. What
// `Tensor.detach()` gives shares the version counter too, but is no view to autograd.
#include <ATen/ops/as_strided.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "executor/opcodes.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {

class View : public Step {
 public:
  View(int slot, int source, Ints sizes, Ints strides, Int offset, bool absolute)
      : slot_(slot), source_(source), sizes_(std::move(sizes)), strides_(std::move(strides)), offset_(offset), absolute_(absolute) {}

  void run(Frame& frame) const override {
    const at::Tensor& source = frame.slots[source_];
    TORCH_CHECK(source.defined(), "dyncomp: a view of an undefined tensor");
    Ints::Buffer size_buffer, stride_buffer;
    at::IntArrayRef sizes = sizes_.get(frame, size_buffer), strides = strides_.get(frame, stride_buffer);
    int64_t offset = offset_.get(frame) + (absolute_ ? 0 : source.storage_offset());
    check_inside(source, sizes, strides, offset);
    frame.slots[slot_] = make(frame, source, sizes, strides, offset);
  }

 protected:
  virtual at::Tensor make(Frame&, const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) const {
    auto* impl = source.unsafeGetTensorImpl();
    auto view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(impl->unsafe_storage()),
                                                         impl->key_set(), impl->dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return view;
  }

 private:
  static void check_inside(const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
    int64_t elements = extent(sizes, strides);
    auto itemsize = static_cast<int64_t>(source.unsafeGetTensorImpl()->itemsize());
    auto bytes = static_cast<int64_t>(source.unsafeGetTensorImpl()->unsafe_storage().nbytes());
    TORCH_CHECK(offset >= 0 && (elements == 0 || (offset + elements) * itemsize <= bytes), "dyncomp: a view with sizes ", text(sizes),
                ", strides ", text(strides), " and offset ", text(offset), " reaches beyond a storage of ", text(bytes), " bytes");
  }

  int slot_, source_;
  Ints sizes_, strides_;
  Int offset_;
  bool absolute_;
};

class EscapingView final : public View {
 public:
  using View::View;

 protected:
  at::Tensor make(Frame& frame, const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) const override {
    auto keys = frame.caller_keys;
    keys.excluded_ = keys.excluded_ | c10::autograd_dispatch_keyset;
    c10::impl::ForceDispatchKeyGuard as_caller(keys);
    return at::as_strided(source, sizes, strides, offset);
  }
};

class Detached final : public View {
 public:
  using View::View;

 protected:
  at::Tensor make(Frame& frame, const at::Tensor& source, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) const override {
    at::Tensor alias = View::make(frame, source, sizes, strides, offset);
    alias.unsafeGetTensorImpl()->set_version_counter(source.unsafeGetTensorImpl()->version_counter());
    return alias;
  }
};

// Views of views become views of the first base where that is still at hand, because that is what an escaping view must know.
void prefer_root(Builder& builder, int& source, Int& offset, bool& absolute) {
  const SlotState& via = builder.slots[source];
  if (via.root < 0) {
    return;
  }
  const SlotState& root = builder.slots[via.root];
  bool stays = via.root < builder.program.inputs || root.constant;
  if (!stays && (!root.live || root.generation != via.root_generation)) {
    return;
  }
  if (!absolute) {
    if (!offset.is_constant() || !via.offset.is_constant()) {
      return;
    }
    offset.value += via.offset.value;
    absolute = via.absolute;
  }
  source = via.root;
}

// The fields that all these instructions have.
struct Alias {
  int slot, source;
  Ints sizes, strides;
  Int offset;
};

Alias read_alias(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 5);
  int slot = fields.define("slot"), source = fields.read("source");
  if (slot == source) {
    throw BuildError("a view of itself");
  }
  Ints sizes = fields.ints("sizes"), strides = fields.ints("strides");
  check_shape(sizes, strides);
  return {slot, source, std::move(sizes), std::move(strides), fields.number("offset")};
}

// Memory of the arena is used anew by the next call.
void check_may_leave(const SlotState& state, int slot) {
  if (state.escapes && state.over_arena) {
    throw BuildError("slot " + std::to_string(slot) + " is a view of scratch memory and must not be an output");
  }
}

StepPtr build(Builder& builder, PyObject* instruction, bool absolute) {
  auto [slot, source, sizes, strides, offset] = read_alias(builder, instruction);
  prefer_root(builder, source, offset, absolute);
  SlotState& state = builder.slots[slot];
  state.root = source;
  state.root_generation = builder.slots[source].generation;
  state.absolute = absolute;
  state.offset = offset;
  state.over_arena = builder.slots[source].over_arena;
  check_may_leave(state, slot);
  if (!state.escapes) {
    return std::make_unique<View>(slot, source, std::move(sizes), std::move(strides), offset, absolute);
  }
  return std::make_unique<EscapingView>(slot, source, std::move(sizes), std::move(strides), offset, absolute);
}

}  // namespace

StepPtr build_view(Builder& builder, PyObject* instruction) { return build(builder, instruction, true); }

StepPtr build_view_rel(Builder& builder, PyObject* instruction) { return build(builder, instruction, false); }

StepPtr build_detach(Builder& builder, PyObject* instruction) {
  auto [slot, source, sizes, strides, offset] = read_alias(builder, instruction);
  SlotState& state = builder.slots[slot];
  state.over_arena = builder.slots[source].over_arena;
  check_may_leave(state, slot);
  return std::make_unique<Detached>(slot, source, std::move(sizes), std::move(strides), offset, /*absolute=*/false);
}

}  // namespace dyncomp::executor
