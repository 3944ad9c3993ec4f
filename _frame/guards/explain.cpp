// Says which guard of a tree fails, in words. Slow path: it may call `repr` on the user's objects.
#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "guards/check.h"
#include "guards/evaluation.h"

namespace dyncomp {
namespace {

Ref text_of(PyObject* object) {
  Ref text = Ref::steal(PyObject_Repr(object));
  if (text) {
    constexpr Py_ssize_t kLongest = 200;
    if (PyUnicode_GET_LENGTH(text.get()) <= kLongest) return text;
    Ref head = Ref::steal(PyUnicode_Substring(text.get(), 0, kLongest));
    return head ? Ref::steal(PyUnicode_FromFormat("%U...", head.get())) : Ref();
  }
  PyErr_Clear();
  return Ref::steal(PyUnicode_FromFormat("<%.200s object>", Py_TYPE(object)->tp_name));
}

Ref expected_and_found(const char* what, PyObject* expected, PyObject* found) {
  Ref left = text_of(expected), right = text_of(found);
  if (!left || !right) return {};
  return Ref::steal(PyUnicode_FromFormat("%s: expected %U, found %U", what, left.get(), right.get()));
}

// Names the parts of the metadata that differ.
Ref explain_tensor(PyObject* spec, PyObject* value) {
  static const char* names[] = {"class", "dtype", "device", "requires_grad", "dispatch keys", "sizes", "strides"};
  Ref now = Ref::steal(tensor_describe(value));
  if (!now) {
    PyErr_Clear();
    return expected_and_found("tensor", PyTuple_GET_ITEM(spec, 0), reinterpret_cast<PyObject*>(Py_TYPE(value)));
  }
  Ref parts = Ref::steal(PyList_New(0));
  Ref separator = Ref::steal(PyUnicode_FromString("; "));
  if (!parts || !separator) return {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(spec); ++i) {
    PyObject *expected = PyTuple_GET_ITEM(spec, i), *found = PyTuple_GET_ITEM(now.get(), i);
    int same = PyObject_RichCompareBool(expected, found, Py_EQ);
    if (same < 0) return {};
    if (same == 1) continue;
    Ref part = expected_and_found(names[i], expected, found);
    if (!part || PyList_Append(parts.get(), part.get()) < 0) return {};
  }
  if (PyList_GET_SIZE(parts.get()) == 0) {  // all that a spec says is the same
    return Ref::steal(PyUnicode_FromString("expected a plain tensor, found a dual tensor of forward-mode differentiation"));
  }
  return Ref::steal(PyUnicode_Join(separator.get(), parts.get()));
}

Ref explain_attrs(PyObject* pairs, PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* name = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0);
    PyObject* expected = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 1);
    PyObject* found = _PyType_Lookup(type, name);
    if (found == nullptr) found = absent;
    if (found == expected) continue;
    Ref left = text_of(expected), right = text_of(found);
    if (!left || !right) return {};
    return Ref::steal(PyUnicode_FromFormat("attribute %R of class %.200s: expected %U, found %U", name,
                                           type->tp_name, left.get(), right.get()));
  }
  return Ref::steal(PyUnicode_FromString("class attributes"));
}

Ref explain_no_item(PyObject* keys, PyObject* dict) {
  for (Py_ssize_t i = 0; PyDict_Check(dict) && i < PyTuple_GET_SIZE(keys); ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    int present = PyDict_Contains(dict, key);
    if (present < 0) return {};
    if (present == 1) return Ref::steal(PyUnicode_FromFormat("key %R: expected absent, found present", key));
  }
  return Ref::steal(PyUnicode_FromFormat("expected a dict, found %.200s", Py_TYPE(dict)->tp_name));
}

Ref explain_empty_items(PyObject* pairs, PyObject* dict) {
  for (Py_ssize_t i = 0; PyDict_Check(dict) && i < PyTuple_GET_SIZE(pairs); ++i) {
    PyObject* key = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 0);
    PyObject* type = PyTuple_GET_ITEM(PyTuple_GET_ITEM(pairs, i), 1);
    Ref found = Ref::share(PyDict_GetItemWithError(dict, key));
    if (!found) {
      if (PyErr_Occurred()) return {};
      return Ref::steal(PyUnicode_FromFormat("key %R: not there", key));
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(found.get())) == type && PyDict_GET_SIZE(found.get()) == 0) continue;
    Ref text = text_of(found.get());
    if (!text) return {};
    return Ref::steal(PyUnicode_FromFormat("key %R: expected an empty %.200s, found %U", key,
                                           reinterpret_cast<PyTypeObject*>(type)->tp_name, text.get()));
  }
  return Ref::steal(PyUnicode_FromFormat("expected a dict, found %.200s", Py_TYPE(dict)->tp_name));
}

Ref explain_length(Py_ssize_t expected, PyObject* value) {
  Py_ssize_t length = length_of(value);
  if (length < 0) return Ref::steal(PyUnicode_FromFormat("length of a %.200s is not known", Py_TYPE(value)->tp_name));
  return Ref::steal(PyUnicode_FromFormat("length: expected %zd, found %zd", expected, length));
}

Ref explain_range(const Check& check, PyObject* value) {
  Ref found = text_of(value);
  if (!found) return {};
  if (check.unbounded) {
    return Ref::steal(PyUnicode_FromFormat("range: expected an int from %zd up, found %U", check.low, found.get()));
  }
  return Ref::steal(
      PyUnicode_FromFormat("range: expected an int from %zd to %zd, found %U", check.low, check.high, found.get()));
}

Ref explain_identity(const Check& check, PyObject* value) {
  PyObject* expected = check.object.get();
  if (check.weak) expected = reinterpret_cast<PyWeakReference*>(expected)->wr_object;
  if (check.weak && expected == Py_None) return Ref::steal(PyUnicode_FromString("the expected object is gone"));
  return expected_and_found("identity", expected, value);
}

// The text of the requirement that fails.
Ref explain_program(const Check& check, const Evaluation& evaluation) {
  int32_t failed = program_failure(*check.program, evaluation.values());
  if (failed < 0) return Ref::steal(PyUnicode_FromString("sizes: a number cannot be read"));
  PyObject* texts = PyTuple_GET_ITEM(check.object.get(), 2);
  if (failed >= PyTuple_GET_SIZE(texts)) return Ref::steal(PyUnicode_FromString("sizes: an operation has no result"));
  return Ref::steal(PyUnicode_FromFormat("sizes: expected %S", PyTuple_GET_ITEM(texts, failed)));
}

Ref explain_distinct(const Check& check, const Evaluation& evaluation) {
  int32_t first = -1, second = -1;
  if (distinct_holds(*check.distinct, evaluation.values(), &first, &second)) return {};
  return Ref::steal(PyUnicode_FromFormat("nodes %d and %d: expected different objects", first, second));
}

Ref explain_check(const Check& check, PyObject* value, const Evaluation& evaluation) {
  PyObject* payload = check.object.get();
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  switch (check.kind) {
    case Kind::type: return expected_and_found("type", payload, type);
    case Kind::id: return explain_identity(check, value);
    case Kind::equals: return expected_and_found("value", payload, value);
    case Kind::len: return explain_length(check.low, value);
    case Kind::empty: return explain_length(0, value);
    case Kind::dict_keys: {
      if (!PyDict_Check(value)) return expected_and_found("type", reinterpret_cast<PyObject*>(&PyDict_Type), type);
      Ref keys = Ref::steal(PyDict_Keys(value));
      return keys ? expected_and_found("keys", payload, keys.get()) : Ref();
    }
    case Kind::tensor: return explain_tensor(payload, value);
    case Kind::class_attrs: return explain_attrs(payload, Py_TYPE(value));
    case Kind::type_attrs:
      if (!PyType_Check(value)) return expected_and_found("type", reinterpret_cast<PyObject*>(&PyType_Type), type);
      return explain_attrs(payload, reinterpret_cast<PyTypeObject*>(value));
    case Kind::no_item: return explain_no_item(payload, value);
    case Kind::empty_items: return explain_empty_items(payload, value);
    case Kind::item_if_any:
      return Ref::steal(PyUnicode_FromFormat("key %R: expected absent or %R, found another value",
                                             PyTuple_GET_ITEM(payload, 0), PyTuple_GET_ITEM(payload, 1)));
    case Kind::truth: return expected_and_found("truth", check.low != 0 ? Py_True : Py_False, value);
    case Kind::same_as: return Ref::steal(PyUnicode_FromFormat("expected the same object as node %zd", check.low));
    case Kind::not_same_as: return Ref::steal(PyUnicode_FromFormat("expected another object than node %zd", check.low));
    case Kind::distinct: return explain_distinct(check, evaluation);
    case Kind::range: return explain_range(check, value);
    case Kind::int_program: return explain_program(check, evaluation);
  }
  return {};
}

Ref explain_access(const Node& node) {
  const char* name = access_name(node.access);
  if (node.access == Access::weak) return Ref::steal(PyUnicode_FromString("weak: the object is gone"));
  if (node.access == Access::call || !node.arg) return Ref::steal(PyUnicode_FromFormat("%s %zd: not there", name, node.index));
  return Ref::steal(PyUnicode_FromFormat("%s %R: not there", name, node.arg.get()));
}

}  // namespace

PyObject* tree_explain(GuardTree* tree, PyFunctionObject* function, PyObject* const* args) {
  if (*tree->state && !state_holds(**tree->state, tree->precision)) {
    PyObject* text = state_explain(**tree->state, tree->precision);
    return text != nullptr ? Py_BuildValue("(isN)", -1, "state", text) : nullptr;
  }
  Evaluation evaluation(tree, function, args);
  if (evaluation.run()) Py_RETURN_NONE;
  int32_t at = evaluation.failed_node();
  const Node& node = (*tree->nodes)[static_cast<size_t>(at)];
  if (evaluation.failed_check() < 0) {
    Ref text = explain_access(node);
    return text ? Py_BuildValue("(isO)", at, access_name(node.access), text.get()) : nullptr;
  }
  const Check& check = (*tree->checks)[static_cast<size_t>(evaluation.failed_check())];
  Ref value = Ref::share(evaluation.value(at));  // `repr` may run code that drops it
  Ref text = explain_check(check, value.get(), evaluation);
  return text ? Py_BuildValue("(isO)", at, kind_name(check.kind), text.get()) : nullptr;
}

}  // namespace dyncomp
