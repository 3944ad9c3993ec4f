// Ranges, not storages: two halves of one tensor are separate, and two storages over one memory (of one array of numpy) are not.
#include "executor/overlap.h"

#include <algorithm>
#include <cstdint>

#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "executor/program.h"

namespace dyncomp::executor {

namespace {

struct Range {
  uintptr_t begin, end;  // bytes
  bool written;
};

bool range_of(const at::Tensor& tensor, Range& range) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) {
    return false;
  }
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::DataPtr& data = storage->_mutable_data_ptr_no_checks();
  if (c10::impl::cow::is_cow_data_ptr(data)) {  // it gets memory of its own before it is written
    range.begin = reinterpret_cast<uintptr_t>(storage);
    range.end = range.begin + 1;
    return true;
  }
  if (data.get() == nullptr) {
    return false;
  }
  auto itemsize = static_cast<int64_t>(tensor.dtype().itemsize());
  range.begin = reinterpret_cast<uintptr_t>(data.get()) + static_cast<uintptr_t>(tensor.storage_offset() * itemsize);
  range.end = range.begin + static_cast<uintptr_t>(extent(tensor.sizes(), tensor.strides()) * itemsize);
  return true;
}

}  // namespace

bool shares_written_memory(at::ArrayRef<at::Tensor> inputs, const std::vector<bool>& written) {
  c10::SmallVector<Range, 64> ranges;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Range range{0, 0, written[i]};
    if (range_of(inputs[i], range)) {
      ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uintptr_t any_end = 0, written_end = 0;
  for (const Range& range : ranges) {
    if (range.begin < written_end || (range.written && range.begin < any_end)) {
      return true;
    }
    any_end = std::max(any_end, range.end);
    if (range.written) {
      written_end = std::max(written_end, range.end);
    }
  }
  return false;
}

int shares_memory(PyObject* inputs, PyObject* written) {
  try {
    std::vector<at::Tensor> tensors;
    for (py::handle object : py::reinterpret_borrow<py::sequence>(inputs)) {
      tensors.push_back(THPVariable_Check(object.ptr()) ? THPVariable_Unpack(object.ptr()) : at::Tensor());
    }
    std::vector<bool> by_input(tensors.size());
    for (int index : py::cast<std::vector<int>>(py::handle(written))) {
      by_input.at(static_cast<std::size_t>(index)) = true;
    }
    return shares_written_memory(tensors, by_input);
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return -1;
}

}  // namespace dyncomp::executor
