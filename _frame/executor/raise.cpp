#include "executor/raise.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

namespace dyncomp::executor {

void raise_python(PyObject* type, const std::string& message) {
  py::gil_scoped_acquire locked;
  PyErr_SetString(type, message.c_str());
  python_error error;
  error.persist();
  throw std::move(error);
}

}  // namespace dyncomp::executor
