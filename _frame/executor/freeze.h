// The plain data that a plan keeps of what it was made from.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace dyncomp::executor {

// Lists become tuples and dicts pairs, all the way down, so that nobody changes the data of a plan afterwards.
py::object freeze(py::handle object);
// The same of a plan's outputs: the value of a constant output is the caller's and stays as it is.
py::object freeze_outputs(py::handle outputs);

}  // namespace dyncomp::executor
