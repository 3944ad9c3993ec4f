// Guards on tensor metadata, read from the tensor itself. Compiled out in a build without torch.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace dyncomp {

struct TensorGuard {
  PyTypeObject* type;  // held by the check's payload
  uint64_t keys;
  uint16_t dtype;
  int16_t device_type;
  int16_t device_index;
  bool requires_grad;
  bool open;  // some size or stride may be anything
  uint32_t dims;
  std::vector<int64_t> numbers;  // sizes, then strides
  std::vector<uint32_t> closed;  // the numbers that are compared, when `open`

  bool on_cpu() const { return device_type == 0; }
};

// Finds where a tensor object keeps its TensorImpl, by looking at a real tensor. False with an exception.
bool tensor_init();
// The plain description of a tensor, made into `TensorSpec` by the Python face: a new reference to the tuple
// (class, dtype, device, requires_grad, dispatch keys, sizes, strides).
PyObject* tensor_describe(PyObject* tensor);
// Guard from such a tuple (entries of sizes and strides may be None); nullptr with an exception.
std::unique_ptr<TensorGuard> tensor_guard(PyObject* spec);
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
