#include "executor/host_number.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/python_variable.h>

namespace dyncomp::executor {

namespace {

// One tensor holds it; torch's Python object for a storage, once it was made, lives with it and counts as well.
bool has_one_holder(const c10::Storage& storage) {
  auto count = storage.use_count();
  return count == 1 || (count == 2 && storage.unsafeGetStorageImpl()->pyobj_slot()->has_unique_reference());
}

// Nobody else sees this memory, so that what is written to it is written through this very tensor.
bool holds_one_number_alone(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.numel() == 1 && !tensor.is_neg() &&
         tensor.key_set().has(c10::DispatchKey::Dense) && !tensor.unsafeGetTensorImpl()->is_python_dispatch() &&
         tensor.has_storage() && has_one_holder(tensor.storage()) && tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() == tensor.itemsize();
}

}  // namespace

PyObject* host_number(PyObject* object) {
  if (!THPVariable_Check(object)) {
    Py_RETURN_NONE;
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  if (!holds_one_number_alone(tensor)) {
    Py_RETURN_NONE;
  }
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return PyFloat_FromDouble(static_cast<double>(*static_cast<const float*>(data)));
    case at::kDouble:
      return PyFloat_FromDouble(*static_cast<const double*>(data));
    case at::kLong:
      return PyLong_FromLongLong(*static_cast<const int64_t*>(data));
    case at::kInt:
      return PyLong_FromLong(*static_cast<const int32_t*>(data));
    case at::kBool:
      return PyLong_FromLong(*static_cast<const bool*>(data) ? 1 : 0);
    default:
      Py_RETURN_NONE;
  }
}

}  // namespace dyncomp::executor
