#include "guards/tree.h"

#include <structmember.h>

namespace dyncomp {
namespace {

GuardTree* as_tree(PyObject* self) { return reinterpret_cast<GuardTree*>(self); }

PyObject* tree_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"nodes", "captures", "state", nullptr};
  PyObject *nodes, *captures, *state = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O:GuardTree", const_cast<char**>(names), &nodes, &captures,
                                   &state)) {
    return nullptr;
  }
  GuardTree* tree = as_tree(type->tp_alloc(type, 0));
  if (tree == nullptr) return nullptr;
  tree->nodes = new std::vector<Node>;
  tree->checks = new std::vector<Check>;
  tree->captures = new std::vector<int32_t>;
  tree->tensors = new std::vector<TensorGuardPointer>;
  tree->distincts = new std::vector<std::unique_ptr<Distinct>>;
  tree->state = new StatePointer;
  if (!tree_build(tree, nodes, captures, state)) {
    Py_DECREF(tree);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(tree);
}

int tree_traverse(PyObject* self, visitproc visit, void* arg) {
  if (as_tree(self)->nodes == nullptr) return 0;
  for (Node& node : *as_tree(self)->nodes) {
    Py_VISIT(node.arg.get());
    Py_VISIT(node.hint_key.get());
  }
  for (Check& check : *as_tree(self)->checks) Py_VISIT(check.object.get());
  return 0;
}

// A cleared tree would match everything, so its parts are only dropped with the tree itself: cycles through a tree are
// broken at the entry or cache that holds it.
void tree_dealloc(PyObject* self) {
  GuardTree* tree = as_tree(self);
  PyObject_GC_UnTrack(self);
  if (tree->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  delete tree->nodes;
  delete tree->checks;
  delete tree->captures;
  delete tree->tensors;
  delete tree->distincts;
  delete tree->state;
  Py_TYPE(self)->tp_free(self);
}

// A call as Python sees it: the function and a tuple of its argument slots.
bool read_call(GuardTree* tree, PyObject* const* args, Py_ssize_t count, PyFunctionObject** function,
               PyObject* const** slots) {
  if (count != 2 || !PyTuple_Check(args[1]) || !(PyFunction_Check(args[0]) || args[0] == Py_None)) {
    PyErr_SetString(PyExc_TypeError, "expected (function, tuple of argument slots)");
    return false;
  }
  for (const Node& node : *tree->nodes) {
    if (node.access == Access::local && node.index >= PyTuple_GET_SIZE(args[1])) {
      PyErr_Format(PyExc_IndexError, "the guards read argument slot %zd of %zd", node.index, PyTuple_GET_SIZE(args[1]));
      return false;
    }
  }
  *function = reinterpret_cast<PyFunctionObject*>(args[0]);
  *slots = reinterpret_cast<PyTupleObject*>(args[1])->ob_item;
  return true;
}

PyObject* tree_check(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  PyFunctionObject* function;
  PyObject* const* slots;
  if (!read_call(as_tree(self), args, count, &function, &slots)) return nullptr;
  Captures captures;
  return PyBool_FromLong(tree_match(as_tree(self), function, slots, captures));
}

PyObject* tree_method_explain(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  PyFunctionObject* function;
  PyObject* const* slots;
  if (!read_call(as_tree(self), args, count, &function, &slots)) return nullptr;
  return tree_explain(as_tree(self), function, slots);
}

PyObject* tree_capture(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  PyFunctionObject* function;
  PyObject* const* slots;
  if (!read_call(as_tree(self), args, count, &function, &slots)) return nullptr;
  Captures captures;
  if (!tree_match(as_tree(self), function, slots, captures)) {
    PyErr_SetString(PyExc_ValueError, "the guards do not hold for this call");
    return nullptr;
  }
  PyObject* values = PyTuple_New(static_cast<Py_ssize_t>(captures.count()));
  if (values == nullptr) return nullptr;
  for (size_t i = 0; i < captures.count(); ++i) PyTuple_SET_ITEM(values, i, Py_NewRef(captures.data()[i]));
  return values;
}

Py_ssize_t tree_length(PyObject* self) { return static_cast<Py_ssize_t>(as_tree(self)->nodes->size()); }

template <typename Function>
PyCFunction as_method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyMethodDef methods[] = {
    {"check", as_method(tree_check), METH_FASTCALL, "check(func, args) -> bool"},
    {"explain", as_method(tree_method_explain), METH_FASTCALL,
     "explain(func, args) -> None or (node, kind, text) of the first guard that fails; node -1 is the global state."},
    {"capture", as_method(tree_capture), METH_FASTCALL,
     "capture(func, args) -> tuple of the captured values; ValueError if the guards do not hold."},
    {},
};

PySequenceMethods sequence = {.sq_length = tree_length};

}  // namespace

PyTypeObject GuardTreeType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.GuardTree",
    .tp_basicsize = sizeof(GuardTree),
    .tp_dealloc = tree_dealloc,
    .tp_as_sequence = &sequence,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "GuardTree(nodes, captures, state=None)\n\nnodes: [(parent, access, arg, checks)]; captures: [node index]; "
              "state: from global_state(), or None for no check of it.",
    .tp_traverse = tree_traverse,
    .tp_weaklistoffset = offsetof(GuardTree, weakrefs),
    .tp_methods = methods,
    .tp_new = tree_new,
};

}  // namespace dyncomp
