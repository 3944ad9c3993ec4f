#include "guards/constant.h"

#include <cstring>
#include <utility>

#include "ref.h"

namespace dyncomp {
namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool all_constants(PyObject* iterable) {
  Ref iterator = Ref::steal(PyObject_GetIter(iterable));
  if (!iterator) {
    PyErr_Clear();
    return false;
  }
  while (Ref item = Ref::steal(PyIter_Next(iterator.get()))) {
    if (!is_constant(item.get())) return false;
  }
  return true;
}

// An immutable type whose `==` is written in C (torch.dtype, torch.device, range, ...); mutable ones have no hash.
bool compares_in_c(PyTypeObject* type) {
  if (type->tp_hash == PyObject_HashNotImplemented) return false;
  static PyObject* name = PyUnicode_InternFromString("__eq__");
  PyObject* method = _PyType_Lookup(type, name);
  return method != nullptr && Py_IS_TYPE(method, &PyWrapperDescr_Type);
}

bool same_items(PyObject* a, PyObject* b) {
  Py_ssize_t count = PyTuple_GET_SIZE(a);
  if (count != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
  }
  return true;
}

// Set equality calls 1, True and 1.0 the same, so each member must have an exact partner.
bool same_members(PyObject* a, PyObject* b) {
  if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return false;
  Ref left = Ref::steal(PySequence_Tuple(a)), right = Ref::steal(PySequence_Tuple(b));
  if (!left || !right) {
    PyErr_Clear();
    return false;
  }
  Py_ssize_t count = PyTuple_GET_SIZE(left.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    bool found = false;
    for (Py_ssize_t j = 0; j < count && !found; ++j) {
      found = same_constant(PyTuple_GET_ITEM(left.get(), i), PyTuple_GET_ITEM(right.get(), j));
    }
    if (!found) return false;
  }
  return true;
}

bool equal_in_c(PyObject* a, PyObject* b) {
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal == 1;
}

bool is_size_like(PyTypeObject* type) {  // torch.Size and other tuple types that add no Python-level state
  return PyType_HasFeature(type, Py_TPFLAGS_TUPLE_SUBCLASS) && type->tp_dictoffset == 0;
}

}  // namespace

bool is_constant(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type ||
      type == &PyComplex_Type || type == &PyBytes_Type || object == Py_None || object == Py_Ellipsis) {
    return true;
  }
  if (type == &PySlice_Type) {
    PySliceObject* slice = reinterpret_cast<PySliceObject*>(object);
    return is_constant(slice->start) && is_constant(slice->stop) && is_constant(slice->step);
  }
  if (type == &PyFrozenSet_Type || is_size_like(type)) return all_constants(object);
  return !PyTuple_Check(object) && compares_in_c(type);
}

bool same_constant(PyObject* a, PyObject* b) {
  if (a == b) return true;
  PyTypeObject* type = Py_TYPE(a);
  if (type != Py_TYPE(b)) return false;
  if (type == &PyUnicode_Type) return PyUnicode_Compare(a, b) == 0;
  if (type == &PyFloat_Type) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (type == &PyComplex_Type) {
    Py_complex x = reinterpret_cast<PyComplexObject*>(a)->cval, y = reinterpret_cast<PyComplexObject*>(b)->cval;
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  if (type == &PySlice_Type) {
    PySliceObject *x = reinterpret_cast<PySliceObject*>(a), *y = reinterpret_cast<PySliceObject*>(b);
    return same_constant(x->start, y->start) && same_constant(x->stop, y->stop) && same_constant(x->step, y->step);
  }
  if (type == &PyFrozenSet_Type) return same_members(a, b);
  if (PyTuple_Check(a)) return same_items(a, b);
  return equal_in_c(a, b);
}

}  // namespace dyncomp
