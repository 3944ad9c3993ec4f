#include "executor/freeze.h"

#include "executor/fields.h"

namespace dyncomp::executor {

py::object freeze(py::handle object) {
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    py::tuple frozen(PySequence_Fast_GET_SIZE(object.ptr()));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object.ptr()); ++i) {
      frozen[i] = freeze(PySequence_Fast_GET_ITEM(object.ptr(), i));
    }
    return frozen;
  }
  if (PyDict_Check(object.ptr())) {
    py::list pairs;
    for (auto [key, value] : py::reinterpret_borrow<py::dict>(object)) {
      pairs.append(py::make_tuple(key, freeze(value)));
    }
    return py::tuple(pairs);
  }
  return py::reinterpret_borrow<py::object>(object);
}

py::object freeze_outputs(py::handle outputs) {
  py::list frozen;
  for (PyObject* row : items(outputs.ptr(), "outputs")) {
    frozen.append(py::tuple(py::reinterpret_borrow<py::object>(row)));
  }
  return py::tuple(frozen);
}

}  // namespace dyncomp::executor
