#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "guards/access.h"

namespace dyncomp {
namespace {

PyObject* quietly(PyObject* result) {
  if (result == nullptr) PyErr_Clear();
  return result;
}

// Remembers where in the dict the key is. The search is linear, so it happens ever more rarely on a dict that keeps
// changing shape.
void refresh_hint(Node& node, PyObject* dict, PyObject* value) {
  if (node.hint_misses == UINT16_MAX) return;
  uint16_t misses = ++node.hint_misses;
  if ((misses & (misses - 1)) != 0) return;
  Py_ssize_t count = compat::dict_slots(dict);
  for (Py_ssize_t slot = 0; slot < count; ++slot) {
    PyObject* key = compat::dict_slot_key(dict, slot);
    if (key == nullptr || compat::dict_slot_value(dict, slot) != value) continue;
    bool same = key == node.arg.get() || (PyUnicode_CheckExact(key) && PyUnicode_CheckExact(node.arg.get()) &&
                                          PyUnicode_Compare(key, node.arg.get()) == 0);
    if (!same) continue;
    node.hint_key = Ref::share(key);
    node.index = slot;
    return;
  }
}

PyObject* function_closure_cell(PyFunctionObject* function, Py_ssize_t index) {
  PyObject* closure = function->func_closure;
  if (closure == nullptr || index >= PyTuple_GET_SIZE(closure)) return nullptr;
  return PyTuple_GET_ITEM(closure, index);
}

PyObject* function_default(PyFunctionObject* function, Py_ssize_t index) {
  PyObject* defaults = function->func_defaults;
  if (defaults == nullptr || !PyTuple_Check(defaults) || index >= PyTuple_GET_SIZE(defaults)) return nullptr;
  return PyTuple_GET_ITEM(defaults, index);
}

PyObject* function_kwdefault(PyFunctionObject* function, PyObject* name) {
  PyObject* defaults = function->func_kwdefaults;
  if (defaults == nullptr || !PyDict_Check(defaults)) return nullptr;
  return quietly(PyDict_GetItemWithError(defaults, name));
}

}  // namespace

PyObject* access_dict_item(Node& node, PyObject* dict) {
  PyObject* key = node.hint_key.get();
  PyObject* value = nullptr;
  uint64_t version = compat::dict_version(dict);
  if (key != nullptr && compat::dict_slot_key(dict, node.index) == key) [[likely]] {
    value = compat::dict_slot_value(dict, node.index);
  }
  if (value == nullptr) {
    value = quietly(PyDict_GetItemWithError(dict, node.arg.get()));
    if (value != nullptr) refresh_hint(node, dict, value);
  }
  // A comparison of keys may have run code that changed the dict.
  node.hint_version = value != nullptr && compat::dict_version(dict) == version ? version : 0;
  node.hint_value = value;
  return value;
}

PyObject* access_class_attr(Node& node, PyObject* object) {
  if (!PyType_Check(object)) return nullptr;
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(object);
  unsigned int version = compat::type_version(type);
  if (version != 0 && version == node.hint_version && object == node.hint_type) return node.hint_value;
  PyObject* value = _PyType_Lookup(type, node.arg.get());
  node.hint_type = object;
  node.hint_version = compat::type_version(type);
  node.hint_value = value;
  return value;
}

PyObject* access_key_at(PyObject* dict, Py_ssize_t position) {
  if (!PyDict_Check(dict)) return nullptr;
  Py_ssize_t cursor = 0;
  PyObject* key;
  while (PyDict_Next(dict, &cursor, &key, nullptr)) {
    if (position-- == 0) return key;
  }
  return nullptr;
}

PyObject* access_function(Access access, const Node& node, PyObject* object) {
  if (PyMethod_Check(object)) object = PyMethod_GET_FUNCTION(object);
  if (!PyFunction_Check(object)) return nullptr;
  PyFunctionObject* function = reinterpret_cast<PyFunctionObject*>(object);
  switch (access) {
    case Access::cell: return function_closure_cell(function, node.index);
    case Access::func_globals: return function->func_globals;
    case Access::func_code: return function->func_code;
    case Access::func_default: return function_default(function, node.index);
    case Access::func_kwdefault: return function_kwdefault(function, node.arg.get());
    default: return nullptr;
  }
}

PyObject* access_cell_contents(PyObject* cell) { return PyCell_Check(cell) ? PyCell_GET(cell) : nullptr; }

PyObject* access_instance_dict(PyObject* object) { return compat::instance_dict(object); }

PyObject* make_slot_attr(const Node& node, PyObject* object) {
  return quietly(PyObject_GetAttr(object, node.arg.get()));
}

PyObject* make_call(const Node& node, PyObject* object) {
  return quietly(PyObject_CallOneArg(node.arg.get(), object));
}

}  // namespace dyncomp
