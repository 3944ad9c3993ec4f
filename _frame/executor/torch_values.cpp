#include "executor/torch_values.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include "executor/fields.h"

namespace dyncomp::executor {

c10::IValue to_ivalue(PyObject* object, const c10::Argument& argument) {
  try {
    return torch::jit::toIValue(object, argument.type(), argument.N());
  } catch (const std::exception& e) {
    std::string shown = py::cast<std::string>(py::repr(py::handle(object)));
    throw BuildError("argument '" + argument.name() + "' takes " + argument.type()->str() + ", not " + shown);
  }
}

}  // namespace dyncomp::executor
