// Inputs that share memory with one that a program writes: a program made for separate inputs does not hold for them.
#pragma once

#include <Python.h>

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace dyncomp::executor {

// True if the range of memory between the first and the last element of an input in `written` meets that of another input.
// Numbers (undefined tensors), empty tensors and tensors without a storage of their own share nothing.
bool shares_written_memory(at::ArrayRef<at::Tensor> inputs, const std::vector<bool>& written);

// The same for Python: a sequence of inputs, of which those that are no tensors share nothing, and the indices of those that are
// written. -1 with an exception.
int shares_memory(PyObject* inputs, PyObject* written);

}  // namespace dyncomp::executor
