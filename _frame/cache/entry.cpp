#include "cache/entry.h"

#include <structmember.h>

namespace dyncomp {
namespace {

Entry* as_entry(PyObject* self) { return reinterpret_cast<Entry*>(self); }

PyObject* entry_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"guards", "run", "whole", "name", "info", nullptr};
  PyObject *guards, *run, *name = nullptr, *info = Py_None;
  int whole;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Op|UO:Entry", const_cast<char**>(names), &GuardTreeType, &guards,
                                   &run, &whole, &name, &info)) {
    return nullptr;
  }
  if (!PyCallable_Check(run)) return PyErr_Format(PyExc_TypeError, "run must be callable, not %R", run);
  Entry* entry = as_entry(type->tp_alloc(type, 0));
  if (entry == nullptr) return nullptr;
  entry->guards = reinterpret_cast<GuardTree*>(Py_NewRef(guards));
  entry->run = Py_NewRef(run);
  entry->whole = whole != 0;
  entry->name = name != nullptr ? Py_NewRef(name) : PyUnicode_FromString("");
  entry->info = Py_NewRef(info);
  return reinterpret_cast<PyObject*>(entry);
}

int entry_traverse(PyObject* self, visitproc visit, void* arg) {
  Entry* entry = as_entry(self);
  Py_VISIT(entry->guards);
  Py_VISIT(entry->run);
  Py_VISIT(entry->name);
  Py_VISIT(entry->info);
  return 0;
}

int entry_clear(PyObject* self) {
  Entry* entry = as_entry(self);
  Py_CLEAR(entry->run);
  Py_CLEAR(entry->info);
  Py_CLEAR(entry->guards);
  return 0;
}

void entry_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  entry_clear(self);
  Py_CLEAR(as_entry(self)->name);
  Py_TYPE(self)->tp_free(self);
}

PyObject* entry_set_run(PyObject* self, PyObject* run) {
  if (!PyCallable_Check(run)) return PyErr_Format(PyExc_TypeError, "run must be callable, not %R", run);
  PyObject* old = as_entry(self)->run;
  as_entry(self)->run = Py_NewRef(run);
  Py_XDECREF(old);
  Py_RETURN_NONE;
}

PyObject* entry_repr(PyObject* self) {
  Entry* entry = as_entry(self);
  return PyUnicode_FromFormat("<Entry %R%s, %zd hits>", entry->name, entry->whole ? ", whole" : "", entry->hits);
}

PyMethodDef methods[] = {
    {"set_run", entry_set_run, METH_O,
     "Replaces what is called when the guards hold. Calls inside the old one finish in the old one."},
    {},
};

PyMemberDef members[] = {
    {"guards", T_OBJECT_EX, offsetof(Entry, guards), READONLY, "The GuardTree."},
    {"run", T_OBJECT_EX, offsetof(Entry, run), READONLY, "What is called with the captures."},
    {"name", T_OBJECT_EX, offsetof(Entry, name), READONLY, "For logs."},
    {"info", T_OBJECT_EX, offsetof(Entry, info), 0, "The driver's record."},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), READONLY, "Calls served so far."},
    {"whole", T_BOOL, offsetof(Entry, whole), READONLY, "Whether `run` never enters Python code to be compiled."},
    {},
};

}  // namespace

PyTypeObject EntryType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.Entry",
    .tp_basicsize = sizeof(Entry),
    .tp_dealloc = entry_dealloc,
    .tp_repr = entry_repr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Entry(guards, run, whole, name='', info=None)\n\nOne compiled version: `run` is called with the tree's "
              "captures when the guards hold.",
    .tp_traverse = entry_traverse,
    .tp_clear = entry_clear,
    .tp_methods = methods,
    .tp_members = members,
    .tp_new = entry_new,
};

}  // namespace dyncomp
