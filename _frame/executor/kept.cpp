// What the nodes of a walk keep: what makes their formulas, as bytes, and tensors, as Python objects.
#include <cstring>
#include <string>

#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/tensor.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/python_cpp_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/history.h"
#include "executor/walk.h"

namespace dyncomp::executor {

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;

struct Reading {
  Key key;
  py::list tensors;  // of the node that is read
};

void add_tensor(const at::Tensor& tensor, Reading& reading) {
  if (!tensor.defined()) {
    reading.key.add('N');
    return;
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {  // a Python number: it is part of the formula
    reading.key.add('w');
    reading.key.add(tensor.scalar_type());
    c10::complex<double> value = tensor.item().toComplexDouble();
    int64_t whole = tensor.is_complex() || tensor.is_floating_point() ? 0 : tensor.item().toLong();
    reading.key.add(value.real());
    reading.key.add(value.imag());
    reading.key.add(whole);
    return;
  }
  if (tensor.layout() != at::kStrided || !tensor.is_cpu() || tensor.unsafeGetTensorImpl()->is_python_dispatch() || tensor.is_nested()) {
    throw Refusal{"saved tensors that are no plain CPU tensors"};
  }
  reading.key.add('t');
  reading.tensors.append(steal(THPVariable_Wrap(tensor)));
}

void add_saved(PyObject* saved, const CompiledBackward::Ref& node, Reading& reading) {
  const auto& variable = py::cast<const SavedVariable&>(py::handle(saved));
  if (variable.has_hooks()) {
    throw Refusal{"hooks on saved tensors"};
  }
  add_tensor(variable.unpack(node), reading);
}

void add_text(const std::string& text, Key& key) {
  key.add(text.size());
  key.add(text);
}

// A number, a string or the like, exact in type and bits.
void add_value(PyObject* value, Reading& reading) {
  Key& key = reading.key;
  if (value == Py_None) {
    key.add('N');
  } else if (PyBool_Check(value)) {
    key.add('b');
    key.add(value == Py_True);
  } else if (PyLong_CheckExact(value)) {
    key.add('i');
    int overflow = 0;
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0) {  // torch shows a dimension of -1 as 2**64 - 1
      number = static_cast<int64_t>(PyLong_AsUnsignedLongLong(value));
      if (PyErr_Occurred()) {
        PyErr_Clear();
        throw Refusal{"a node that keeps a number beyond 64 bits"};
      }
    }
    key.add(overflow != 0);
    key.add(number);
  } else if (PyFloat_CheckExact(value)) {
    key.add('f');
    key.add(PyFloat_AS_DOUBLE(value));
  } else if (PyComplex_CheckExact(value)) {
    key.add('c');
    key.add(PyComplex_RealAsDouble(value));
    key.add(PyComplex_ImagAsDouble(value));
  } else if (PyUnicode_Check(value)) {
    key.add('s');
    add_text(py::cast<std::string>(py::handle(value)), key);
  } else if (PyTuple_Check(value)) {
    key.add('(');
    key.add(PyTuple_GET_SIZE(value));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) {
      add_value(PyTuple_GET_ITEM(value, i), reading);
    }
  } else if (THPDtype_Check(value) || THPLayout_Check(value) || THPMemoryFormat_Check(value)) {
    key.add('o');
    key.add(value);  // there is one object for each
  } else {
    throw Refusal{std::string("a node that keeps a ") + Py_TYPE(value)->tp_name};
  }
}

bool lacks_results(const Node& node) {
  return std::count_if(node.next_edges().begin(), node.next_edges().end(), [](const auto& edge) { return !edge.function; }) > 1;
}

void add_geometry(const at::TensorGeometry& geometry, Key& key) {
  auto add = [&](const c10::SymInt& number) {
    std::optional<int64_t> plain = number.maybe_as_int();
    if (!plain) {
      throw Refusal{"a node that keeps symbolic sizes"};
    }
    key.add(*plain);
  };
  key.add(geometry.dim());
  for (int64_t d = 0; d < geometry.dim(); ++d) {
    add(geometry.sym_sizes()[d]);
    add(geometry.sym_strides()[d]);
  }
  add(geometry.sym_storage_offset());
}

// `reader`: (names of values, names of saved variables, whether sizes of arguments without a gradient are hidden).
void read_node(PyObject* object, const Visit& visit, PyObject* reader, Reading& reading) {
  if (PyTuple_GET_ITEM(reader, 2) == Py_True && lacks_results(*visit.node)) {
    throw Refusal{visit.node->name() + ": sizes of arguments without a gradient"};
  }
  for (py::handle name : py::reinterpret_borrow<py::tuple>(PyTuple_GET_ITEM(reader, 0))) {
    add_value(steal(PyObject_GetAttr(object, name.ptr())).ptr(), reading);
  }
  for (py::handle name : py::reinterpret_borrow<py::tuple>(PyTuple_GET_ITEM(reader, 1))) {
    py::object saved = steal(PyObject_GetAttr(object, name.ptr()));
    if (!PyTuple_Check(saved.ptr())) {
      add_saved(saved.ptr(), visit.node, reading);
      continue;
    }
    reading.key.add(PyTuple_GET_SIZE(saved.ptr()));
    for (py::handle one : py::reinterpret_borrow<py::tuple>(saved)) {
      add_saved(one.ptr(), visit.node, reading);
    }
  }
  if (const auto* node = dynamic_cast<const torch::autograd::generated::AsStridedBackward0*>(&*visit.node)) {
    add_geometry(node->self_geometry, reading.key);
  }
}

void read_any(PyObject* object, const Visit& visit, PyObject* readers, Reading& reading);

// A write through a view: the geometries, and the node of what was written.
void read_write(const torch::autograd::CopySlices& write, PyObject* readers, Reading& reading) {
  if (!write.fn) {
    throw Refusal{"eager raises: it was freed"};
  }
  if (write.view_fn) {
    throw Refusal{"a write through a view that is no plain one"};
  }
  add_geometry(write.base, reading.key);
  add_geometry(write.view, reading.key);
  if (!write.fn->pre_hooks().empty() || !write.fn->post_hooks().empty() || !write.fn->tensor_pre_hooks().empty()) {
    throw Refusal{"a write through a view, with hooks"};
  }
  py::object inner = steal(torch::autograd::functionToPyObject(write.fn));
  reading.key.add(Py_TYPE(inner.ptr()));
  for (const auto& edge : write.fn->next_edges()) {
    reading.key.add(edge.is_valid());
  }
  read_any(inner.ptr(), Visit{write.fn, 'g'}, readers, reading);
}

void read_any(PyObject* object, const Visit& visit, PyObject* readers, Reading& reading) {
  if (const auto* write = dynamic_cast<const torch::autograd::CopySlices*>(&*visit.node)) {
    return read_write(*write, readers, reading);
  }
  py::object reader = steal(PyObject_GetItem(readers, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (PyUnicode_Check(reader.ptr())) {
    throw Refusal{py::cast<std::string>(reader)};
  }
  read_node(object, visit, reader.ptr(), reading);
}

}  // namespace

PyObject* kept_by_history(PyObject* steps, PyObject* objects, PyObject* readers) {
  HANDLE_TH_ERRORS
  try {
    Visits& visits = visits_of(steps);
    py::list kept;
    Reading reading;
    for (std::size_t i = 0; i < visits.size(); ++i) {
      PyObject* object = PyList_GET_ITEM(objects, static_cast<Py_ssize_t>(i));
      reading.tensors = py::list();
      if (visits[i].kind == 'a' || visits[i].kind == 'p') {
        reading.tensors.append(py::handle(object));
      } else if (visits[i].kind == 'c') {
        reading.tensors = py::list(py::reinterpret_borrow<py::object>(PyTuple_GET_ITEM(object, 2)));
      } else if (visits[i].kind == 'g') {
        read_any(object, visits[i], readers, reading);
      }
      kept.append(reading.tensors);
    }
    return py::make_tuple(steal(reading.key.object()), kept).release().ptr();
  } catch (const Refusal& refusal) {
    return PyUnicode_FromStringAndSize(refusal.reason.data(), static_cast<Py_ssize_t>(refusal.reason.size()));
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
  END_HANDLE_TH_ERRORS
}

}  // namespace dyncomp::executor
