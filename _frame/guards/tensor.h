// Guards on tensor metadata, read from the tensor itself. Compiled out in a build without torch.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>

namespace dyncomp {

// One block of memory: this head, then 2 * dims numbers (sizes, strides), then the positions of those that are compared.
struct TensorGuard {
  PyTypeObject* type;  // held by the payload of the check it was made for, in the same tree
  uint64_t keys;
  uint32_t dims;
  uint32_t closed_count;
  uint16_t dtype;
  int16_t device_type;
  int16_t device_index;
  bool requires_grad;
  bool open;  // some size or stride may be anything: only `closed` ones are compared

  bool on_cpu() const { return device_type == 0; }
  int64_t* numbers() { return reinterpret_cast<int64_t*>(this + 1); }
  const int64_t* numbers() const { return reinterpret_cast<const int64_t*>(this + 1); }
  uint32_t* closed() { return reinterpret_cast<uint32_t*>(numbers() + 2 * dims); }
  const uint32_t* closed() const { return reinterpret_cast<const uint32_t*>(numbers() + 2 * dims); }
  bool operator==(const TensorGuard& other) const;  // they hold for the same tensors
};

struct DeleteTensorGuard {
  void operator()(TensorGuard* guard) const { ::operator delete(guard); }
};
using TensorGuardPointer = std::unique_ptr<TensorGuard, DeleteTensorGuard>;

// Finds where a tensor object keeps its TensorImpl, by looking at a real tensor. False with an exception.
bool tensor_init();
// The plain description of a tensor, made into `TensorSpec` by the Python face: a new reference to the tuple
// (class, dtype, device, requires_grad, dispatch keys, sizes, strides).
PyObject* tensor_describe(PyObject* tensor);
// Guard from such a tuple (entries of sizes and strides may be None); nullptr with an exception.
TensorGuardPointer tensor_guard(PyObject* spec);
bool tensor_holds(const TensorGuard& guard, PyObject* value);
// The numbers of a tensor, readable as long as it lives and is not changed.
struct TensorNumbers {
  const int64_t* sizes;
  const int64_t* strides;
  int64_t dims, offset;
};
// False for anything but a plain strided tensor.
bool tensor_numbers(PyObject* value, TensorNumbers* numbers);

}  // namespace dyncomp
