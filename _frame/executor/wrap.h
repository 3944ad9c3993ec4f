// Tensors and numbers of a call as Python objects, for code that runs in autograd's threads.
#pragma once

#include <vector>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/inputs.h"

namespace dyncomp::executor {

// The owner of a new reference; throws the Python error that is set where there is none, with what autograd needs to pass it on.
inline py::object checked(PyObject* owned) {
  if (owned == nullptr) {
    python_error error;
    error.persist();
    throw std::move(error);
  }
  return py::reinterpret_steal<py::object>(owned);
}

inline py::object wrap(const at::Tensor& tensor) { return tensor.defined() ? checked(THPVariable_Wrap(tensor)) : py::none(); }

inline py::tuple wrap_all(const torch::autograd::variable_list& tensors, const std::vector<PlacedNumber>& numbers = {}) {
  py::tuple result(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    result[i] = wrap(tensors[i]);
  }
  for (const PlacedNumber& number : numbers) {
    result[number.place] = checked(make_number(number.kind, number.bits));
  }
  return result;
}

}  // namespace dyncomp::executor
