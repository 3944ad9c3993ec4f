// alloc, scratch, flag, check, free, copy, write_back, write_through: where tensors live, and moving their contents.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "executor/opcodes.h"
#include "executor/pool.h"

namespace dyncomp::executor {

namespace {

uint64_t bytes_of(at::IntArrayRef sizes, at::IntArrayRef strides, caffe2::TypeMeta dtype) {
  return static_cast<uint64_t>(extent(sizes, strides)) * dtype.itemsize();
}

at::Tensor over_storage(c10::Storage storage, caffe2::TypeMeta dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), dtype);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// A fresh CPU tensor over pooled memory. As with eager's own, its storage can be resized: then by torch's allocator.
at::Tensor fresh(caffe2::TypeMeta dtype, at::IntArrayRef sizes, at::IntArrayRef strides) {
  uint64_t bytes = bytes_of(sizes, strides, dtype);
  return over_storage(c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                         pool_data_ptr(bytes), c10::GetCPUAllocator(),
                                                                         /*resizable=*/true)),
                      dtype, sizes, strides);
}

class Alloc final : public Step {
 public:
  Alloc(int slot, at::ScalarType dtype, Ints sizes, Ints strides)
      : slot_(slot), dtype_(c10::scalarTypeToTypeMeta(dtype)), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

  void run(Frame& frame) const override {
    Ints::Buffer size_buffer, stride_buffer;
    frame.slots[slot_] = fresh(dtype_, sizes_.get(frame, size_buffer), strides_.get(frame, stride_buffer));
  }

 private:
  int slot_;
  caffe2::TypeMeta dtype_;
  Ints sizes_, strides_;
};

// A fresh tensor on any other device, from torch's allocator for it.
class DeviceAlloc final : public Step {
 public:
  DeviceAlloc(int slot, at::ScalarType dtype, Ints sizes, Ints strides, c10::Device device)
      : slot_(slot), options_(at::TensorOptions().dtype(dtype).device(device)), sizes_(std::move(sizes)), strides_(std::move(strides)) {}

  void run(Frame& frame) const override {
    Ints::Buffer size_buffer, stride_buffer;
    frame.slots[slot_] = at::empty_strided(sizes_.get(frame, size_buffer), strides_.get(frame, stride_buffer), options_);
  }

 private:
  int slot_;
  at::TensorOptions options_;
  Ints sizes_, strides_;
};

// A tensor over this call's arena. The frame keeps it for its next call.
class Scratch final : public Step {
 public:
  Scratch(int slot, int kept, at::ScalarType dtype, Ints sizes, Ints strides, Int offset)
      : slot_(slot), kept_(kept), dtype_(c10::scalarTypeToTypeMeta(dtype)), sizes_(std::move(sizes)), strides_(std::move(strides)),
        offset_(offset) {}

  void run(Frame& frame) const override {
    at::Tensor& kept = frame.over_arena[kept_];
    if (!kept.defined()) {
      Ints::Buffer size_buffer, stride_buffer;
      kept = over_storage(frame.arena, dtype_, sizes_.get(frame, size_buffer), strides_.get(frame, stride_buffer));
      kept.unsafeGetTensorImpl()->set_storage_offset(offset_.get(frame) / static_cast<int64_t>(dtype_.itemsize()));
      check_fits(frame, kept.sizes(), kept.strides());
    } else if (!sizes_.is_constant() || !strides_.is_constant() || !offset_.is_constant()) {
      Ints::Buffer size_buffer, stride_buffer;
      at::IntArrayRef sizes = sizes_.get(frame, size_buffer), strides = strides_.get(frame, stride_buffer);
      check_fits(frame, sizes, strides);
      kept.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
      kept.unsafeGetTensorImpl()->set_storage_offset(offset_.get(frame) / static_cast<int64_t>(dtype_.itemsize()));
    }
    frame.slots[slot_] = kept;
  }

 private:
  void check_fits(const Frame& frame, at::IntArrayRef sizes, at::IntArrayRef strides) const {
    int64_t offset = offset_.get(frame);
    TORCH_INTERNAL_ASSERT(offset >= 0 && offset + bytes_of(sizes, strides, dtype_) <= frame.arena_bytes, "scratch beyond the arena");
  }

  int slot_, kept_;
  caffe2::TypeMeta dtype_;
  Ints sizes_, strides_;
  Int offset_;
};

// The arena of a plan whose temporaries are as large as the call says.
class Arena final : public Step {
 public:
  explicit Arena(Int bytes) : bytes_(bytes) {}
  void run(Frame& frame) const override { frame.open_arena(std::max<int64_t>(bytes_.get(frame), 1)); }

 private:
  Int bytes_;
};

// One int64 that kernels set when the data holds an index out of range.
class Flag final : public Step {
 public:
  explicit Flag(int slot) : slot_(slot) {}

  void run(Frame& frame) const override {
    at::Tensor& flag = frame.slots[slot_] = fresh(caffe2::TypeMeta::Make<int64_t>(), {1}, {1});
    *flag.mutable_data_ptr<int64_t>() = 0;
  }

 private:
  int slot_;
};

class Check final : public Step {
 public:
  Check(int slot, std::string message) : slot_(slot), message_(std::move(message)) {}

  void run(Frame& frame) const override {
    TORCH_CHECK_INDEX(*frame.slots[slot_].const_data_ptr<int64_t>() == 0, message_);
  }

 private:
  int slot_;
  std::string message_;
};

class Free final : public Step {
 public:
  explicit Free(int slot) : slot_(slot) {}
  void run(Frame& frame) const override { frame.slots[slot_].reset(); }

 private:
  int slot_;
};

// An input goes early if the caller gave it away.
class FreeInput final : public Step {
 public:
  explicit FreeInput(int input) : input_(input) {}
  void run(Frame& frame) const override {
    if (frame.owns_inputs) {
      frame.slots[input_].reset();
    }
  }

 private:
  int input_;
};

// Constants stay: for them, freeing only ends their use in the plan.
class Nothing final : public Step {
 public:
  void run(Frame&) const override {}
};

class Copy final : public Step {
 public:
  Copy(int dst, int src) : dst_(dst), src_(src) {}
  void run(Frame& frame) const override { frame.slots[dst_].copy_(frame.slots[src_]); }

 private:
  int dst_, src_;
};

// An in-place change that the caller sees. It goes through the whole dispatcher in the caller's state, so that the version
// counter, the checks on leaves and inference tensors, and their messages are eager's.
class WriteBack final : public Step {
 public:
  WriteBack(int input, int src) : input_(input), src_(src) {}

  void run(Frame& frame) const override {
    c10::impl::ForceDispatchKeyGuard as_caller(frame.caller_keys);
    frame.slots[input_].copy_(frame.slots[src_]);
  }

 private:
  int input_, src_;
};

// Kernels of this plan write an input's memory themselves. First come the checks of an in-place operation in the caller's
// state, with eager's messages and its version counter; and a lazily cloned input gets memory of its own.
class WriteThrough final : public Step {
 public:
  explicit WriteThrough(int input) : input_(input) {}

  void run(Frame& frame) const override {
    const at::Tensor& input = frame.slots[input_];
    {
      c10::impl::ForceDispatchKeyGuard as_caller(frame.caller_keys);
      input.copy_(input);  // moves nothing
    }
    input.mutable_data_ptr();
  }

 private:
  int input_;
};

// Kernels of this plan write an input's memory themselves, and its version counter is not to know: no more than memory of its
// own for a lazily cloned input.
class Own final : public Step {
 public:
  explicit Own(int input) : input_(input) {}
  void run(Frame& frame) const override { frame.slots[input_].mutable_data_ptr(); }

 private:
  int input_;
};

// Writes of eager's that this plan does not carry out one by one, as its version counter tells them.
class Wrote final : public Step {
 public:
  Wrote(int slot, int64_t times, bool apart) : slot_(slot), times_(static_cast<uint32_t>(times)), apart_(apart) {}

  void run(Frame& frame) const override {
    c10::TensorImpl* impl = frame.slots[slot_].unsafeGetTensorImpl();
    if (impl->is_inference()) {  // those have none
      return;
    }
    if (apart_) {
      impl->set_version_counter(c10::VariableVersion(times_));
      return;
    }
    for (uint32_t i = 0; i < times_; ++i) {
      impl->bump_version();
    }
  }

 private:
  int slot_;
  uint32_t times_;
  bool apart_;  // from other tensors of the same memory: the tensor gets a counter of its own
};

}  // namespace

StepPtr build_alloc(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 5);
  int slot = fields.define("slot");
  at::ScalarType dtype = fields.dtype();
  Ints sizes = fields.ints("sizes"), strides = fields.ints("strides");
  c10::Device device = fields.device();
  check_shape(sizes, strides);
  if (!device.is_cpu()) {
    return std::make_unique<DeviceAlloc>(slot, dtype, std::move(sizes), std::move(strides), device);
  }
  return std::make_unique<Alloc>(slot, dtype, std::move(sizes), std::move(strides));
}

StepPtr build_scratch(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 5);
  int slot = fields.define("slot");
  at::ScalarType dtype = fields.dtype();
  Ints sizes = fields.ints("sizes"), strides = fields.ints("strides");
  Int offset = fields.number("offset");
  check_shape(sizes, strides);
  auto itemsize = static_cast<int64_t>(c10::elementSize(dtype));
  if (offset.is_constant() && (offset.value < 0 || offset.value % itemsize != 0)) {
    throw BuildError("offset " + std::to_string(offset.value) + " is no multiple of the element size " + std::to_string(itemsize));
  }
  if (sizes.is_constant() && strides.is_constant() && offset.is_constant() && !builder.arena_in_call &&
      static_cast<uint64_t>(offset.value + extent(sizes.constants(), strides.constants()) * itemsize) > builder.program.arena) {
    throw BuildError("reaches beyond the arena of " + std::to_string(builder.program.arena) + " bytes");
  }
  if (builder.program.arena == 0 && !builder.arena_in_call) {
    throw BuildError("needs an arena, and the plan has none");
  }
  if (builder.slots[slot].escapes) {
    throw BuildError("slot " + std::to_string(slot) + " lies in the arena and must not be an output");
  }
  builder.slots[slot].over_arena = true;
  return std::make_unique<Scratch>(slot, builder.program.scratches++, dtype, std::move(sizes), std::move(strides), offset);
}

StepPtr build_arena(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 1);
  Int bytes = fields.number("bytes");
  if (builder.program.arena != 0 || builder.arena_in_call) {
    throw BuildError("the plan has an arena already");
  }
  builder.arena_in_call = true;
  return std::make_unique<Arena>(bytes);
}

StepPtr build_flag(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 1);
  return std::make_unique<Flag>(fields.define("slot"));
}

StepPtr build_check(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 2);
  int slot = fields.read("slot");
  return std::make_unique<Check>(slot, fields.text("message"));
}

StepPtr build_free(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 1);
  int slot = fields.read("slot");
  builder.slots[slot].live = false;
  if (builder.slots[slot].constant) {
    return std::make_unique<Nothing>();
  }
  if (slot < builder.program.inputs) {
    return std::make_unique<FreeInput>(slot);
  }
  return std::make_unique<Free>(slot);
}

StepPtr build_copy(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 2);
  int dst = fields.read("dst"), src = fields.read("src");
  builder.program.heavy = true;
  return std::make_unique<Copy>(dst, src);
}

namespace {

int read_written_input(Builder& builder, Fields& fields) {
  int64_t input = fields.integer("input");
  if (input < 0 || input >= builder.program.inputs) {
    throw BuildError("no input " + std::to_string(input) + " (the plan has " + std::to_string(builder.program.inputs) + ")");
  }
  if (builder.slots[input].number) {
    throw BuildError("input " + std::to_string(input) + " is a number and cannot be written");
  }
  return static_cast<int>(input);
}

}  // namespace

StepPtr build_write_back(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 2);
  int input = read_written_input(builder, fields);
  int src = fields.read("src");
  builder.program.heavy = true;
  return std::make_unique<WriteBack>(input, src);
}

StepPtr build_write_through(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 1);
  int input = read_written_input(builder, fields);
  return std::make_unique<WriteThrough>(input);
}

StepPtr build_own(Builder& builder, PyObject* instruction) {
  Fields fields(builder, instruction, 1);
  int input = read_written_input(builder, fields);
  return std::make_unique<Own>(input);
}

namespace {

StepPtr read_wrote(Builder& builder, PyObject* instruction, bool apart) {
  Fields fields(builder, instruction, 2);
  int slot = fields.read("slot");
  int64_t times = fields.integer("times");
  if (times < (apart ? 0 : 1) || times > UINT32_MAX) {
    throw BuildError("a tensor was written " + std::to_string(times) + " times");
  }
  return std::make_unique<Wrote>(slot, times, apart);
}

}  // namespace

StepPtr build_wrote(Builder& builder, PyObject* instruction) { return read_wrote(builder, instruction, false); }

StepPtr build_wrote_apart(Builder& builder, PyObject* instruction) { return read_wrote(builder, instruction, true); }

}  // namespace dyncomp::executor
