#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "guards/check.h"

#include "guards/constant.h"
#include "guards/sentinel.h"

namespace dyncomp {

PyObject* absent = nullptr;

Py_ssize_t length_of(PyObject* value) {
  if (PyList_Check(value) || PyTuple_Check(value) || PyBytes_Check(value)) return Py_SIZE(value);
  if (PyDict_Check(value)) return PyDict_GET_SIZE(value);
  if (PyUnicode_Check(value)) return PyUnicode_GET_LENGTH(value);
  if (PyAnySet_Check(value)) return PySet_GET_SIZE(value);
  return -1;
}

bool check_dict_keys(PyObject* keys, PyObject* dict) {
  Py_ssize_t count = PyTuple_GET_SIZE(keys);
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != count) return false;
  Py_ssize_t cursor = 0;
  PyObject* key;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &cursor, &key, nullptr); ++i) {
    PyObject* expected = PyTuple_GET_ITEM(keys, i);
    if (key != expected && !(is_constant(expected) && same_constant(key, expected))) return false;
  }
  return true;
}

namespace {

enum class Disjoint { yes, no, unknown };

// Looks up the dict's keys among ours: quicker when we have more of them. Unknown: a key whose comparison could run code.
Disjoint keys_disjoint(PyObject* key_set, PyObject* dict) {
  Py_ssize_t cursor = 0;
  PyObject* key;
  while (PyDict_Next(dict, &cursor, &key, nullptr)) {
    if (!PyUnicode_CheckExact(key)) return Disjoint::unknown;
    int found = PySet_Contains(key_set, key);
    if (found < 0) PyErr_Clear();
    if (found != 0) return Disjoint::no;
  }
  return Disjoint::yes;
}

bool lacks_items(const Check& check, PyObject* dict) {
  PyObject* keys = check.object.get();
  if (check.key_set && PyDict_GET_SIZE(dict) < PyTuple_GET_SIZE(keys)) {
    Disjoint disjoint = keys_disjoint(check.key_set.get(), dict);
    if (disjoint != Disjoint::unknown) return disjoint == Disjoint::yes;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* found = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(keys, i));
    if (found == nullptr && !PyErr_Occurred()) continue;
    PyErr_Clear();
    return false;
  }
  return true;
}

}  // namespace

bool check_item_if_any(const Check& check, PyObject* dict) {
  if (!PyDict_Check(dict)) return false;
  PyObject* pair = check.object.get();
  PyObject* found = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(pair, 0));  // borrowed
  if (found != nullptr) return same_constant(PyTuple_GET_ITEM(pair, 1), found);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

bool check_no_item(Check& check, PyObject* dict) {
  if (!PyDict_Check(dict)) return false;
  if (PyDict_GET_SIZE(dict) == 0) return true;
  uint64_t version = compat::dict_version(dict);
  if (version != 0 && version == check.hint_version) return true;
  bool holds = lacks_items(check, dict);
  // If a comparison of keys ran code that changed the dict, the version from before protects no later call.
  check.hint_version = holds ? version : 0;
  return holds;
}

bool check_empty_items(Check& check, PyObject* dict) {
  if (!PyDict_Check(dict)) return false;
  PyObject* pairs = check.object.get();
  PyObject** found = check.found.get();
  Py_ssize_t count = PyTuple_GET_SIZE(pairs);
  uint64_t version = compat::dict_version(dict);
  if (version == 0 || version != check.hint_version) {
    check.hint_version = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
      // All keys are exact strings. A comparison with a key of another kind may run code; if that changes the dict, so does
      // its version, and what was found is not looked at.
      found[i] = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0));
      if (found[i] != nullptr) continue;
      PyErr_Clear();
      return false;
    }
    if (compat::dict_version(dict) != version) return false;
    check.hint_version = version;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* type = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 1);
    if (reinterpret_cast<PyObject*>(Py_TYPE(found[i])) != type || PyDict_GET_SIZE(found[i]) != 0) return false;
  }
  return true;
}

bool check_attrs(Check& check, PyTypeObject* type) {
  unsigned int version = compat::type_version(type);
  if (version != 0 && version == check.hint_version && reinterpret_cast<PyObject*>(type) == check.hint_type) return true;
  PyObject* pairs = check.object.get();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* pair = PyTuple_GET_ITEM(pairs, i);
    PyObject* found = _PyType_Lookup(type, PyTuple_GET_ITEM(pair, 0));
    PyObject* expected = PyTuple_GET_ITEM(pair, 1);
    if ((found != nullptr ? found : absent) != expected) return false;
  }
  check.hint_type = reinterpret_cast<PyObject*>(type);
  check.hint_version = compat::type_version(type);
  return true;
}

int truth_of(PyObject* value) {
  if (value == Py_None) return 0;
  if (PyLong_Check(value)) {
    static PyObject* zero = PyLong_FromLong(0);
    return value != zero && value != Py_False && (PyBool_Check(value) || _PyLong_Sign(value) != 0);
  }
  if (PyFloat_Check(value)) return PyFloat_AS_DOUBLE(value) != 0.0;
  if (PyComplex_Check(value)) {
    Py_complex number = reinterpret_cast<PyComplexObject*>(value)->cval;
    return number.real != 0.0 || number.imag != 0.0;
  }
  Py_ssize_t length = length_of(value);
  return length < 0 ? -1 : length > 0;
}

bool check_range(const Check& check, PyObject* value) {
  if (!PyLong_CheckExact(value)) return false;
  int overflow = 0;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow != 0) return overflow > 0 && check.unbounded;
  return number >= check.low && (check.unbounded || number <= check.high);
}

bool check_init() {
  absent = sentinel_new("ABSENT");
  return absent != nullptr;
}

}  // namespace dyncomp
