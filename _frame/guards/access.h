// How each access of a node reaches its value. All return borrowed references and nullptr, never an exception, on
// failure, except the two that are named `make_`.
#pragma once
#include "guards/tree.h"

namespace dyncomp {

PyObject* access_dict_item(Node& node, PyObject* dict);  // of a dict whose version is not the one seen last
PyObject* access_class_attr(Node& node, PyObject* type);
PyObject* access_key_at(PyObject* dict, Py_ssize_t position);
PyObject* access_function(Access access, const Node& node, PyObject* function);
PyObject* access_cell_contents(PyObject* cell);
PyObject* access_instance_dict(PyObject* object);
PyObject* make_slot_attr(const Node& node, PyObject* object);  // new reference
PyObject* make_call(const Node& node, PyObject* object);       // new reference

}  // namespace dyncomp
