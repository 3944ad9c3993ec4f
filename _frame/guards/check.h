// The checks of a node that need more than one comparison. None leaves an exception.
#pragma once
#include "guards/tree.h"

namespace dyncomp {

// C-level length of a list, tuple, dict, set, str or bytes; -1 for anything else.
Py_ssize_t length_of(PyObject* value);
bool check_dict_keys(PyObject* keys, PyObject* dict);
bool check_no_item(Check& check, PyObject* dict);
// The dict has no such key, or the constant under it.
bool check_item_if_any(const Check& check, PyObject* dict);
// Under each key lies an empty dict of the class given with it.
bool check_empty_items(Check& check, PyObject* dict);
// `class_attrs` of an object of this type, `type_attrs` of the type itself.
bool check_attrs(Check& check, PyTypeObject* type);
// C-level truth; -1 for a value that has none.
int truth_of(PyObject* value);
bool check_range(const Check& check, PyObject* value);
// Marks an attribute that must be absent in `class_attrs` and `type_attrs`.
extern PyObject* absent;
bool check_init();

}  // namespace dyncomp
