#include "hook/region.h"

#include <structmember.h>

#include <utility>

#include "cache/owner.h"
#include "hook/thread.h"
#include "ref.h"

namespace dyncomp {
namespace {

struct Region {
  PyObject_HEAD
  Owner* owner;  // retained; nullptr: nothing inside is a candidate
  PyObject* object;
};

Region* as_region(PyObject* self) { return reinterpret_cast<Region*>(self); }

PyObject* region_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"owner", nullptr};
  PyObject* object;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Region", const_cast<char**>(names), &object)) return nullptr;
  Region* region = as_region(type->tp_alloc(type, 0));
  if (region == nullptr) return nullptr;
  region->object = Py_NewRef(object);
  if (object != Py_None && (region->owner = owner_intern(object)) == nullptr) {
    Py_DECREF(region);
    return nullptr;
  }
  return reinterpret_cast<PyObject*>(region);
}

int region_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_region(self)->object);
  return 0;
}

int region_clear(PyObject* self) {
  Py_CLEAR(as_region(self)->object);
  return 0;
}

void region_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (Owner* owner = std::exchange(as_region(self)->owner, nullptr)) owner_release(owner);
  region_clear(self);
  Py_TYPE(self)->tp_free(self);
}

PyObject* region_method_enter(PyObject* self, PyObject*) {
  region_enter(as_region(self)->owner);
  return Py_NewRef(self);
}

PyObject* region_method_exit(PyObject*, PyObject* const*, Py_ssize_t) {
  if (!region_exit()) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef region_methods[] = {
    {"__enter__", region_method_enter, METH_NOARGS, nullptr},
    {"__exit__", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(region_method_exit)), METH_FASTCALL, nullptr},
    {},
};

// ---- without_hook -------------------------------------------------------------------------------------------------

struct WithoutHook {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* callable;
  PyObject* weakrefs;
  bool single;  // a call returns the one item of what `callable` returns
};

WithoutHook* as_without(PyObject* self) { return reinterpret_cast<WithoutHook*>(self); }

// What `item, = items` gives; takes over the reference to `items`. A new reference, or nullptr with Python's own error.
PyObject* only_item(PyObject* items) {
  Ref held = Ref::steal(items);
  if (!held) return nullptr;
  if (PyTuple_CheckExact(items) && PyTuple_GET_SIZE(items) == 1) return Py_NewRef(PyTuple_GET_ITEM(items, 0));
  if (PyList_CheckExact(items) && PyList_GET_SIZE(items) == 1) return Py_NewRef(PyList_GET_ITEM(items, 0));
  Ref iterator = Ref::steal(PyObject_GetIter(items));
  if (!iterator) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) && Py_TYPE(items)->tp_iter == nullptr && !PySequence_Check(items)) {
      PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", Py_TYPE(items)->tp_name);
    }
    return nullptr;
  }
  Ref item = Ref::steal(PyIter_Next(iterator.get()));
  if (!item) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "not enough values to unpack (expected 1, got 0)");
    return nullptr;
  }
  Ref next = Ref::steal(PyIter_Next(iterator.get()));
  if (next) PyErr_SetString(PyExc_ValueError, "too many values to unpack (expected 1)");
  return next || PyErr_Occurred() ? nullptr : item.release();
}

PyObject* without_vectorcall(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Scope quiet(Scope::Mode::quiet, nullptr);
  PyObject* result = PyObject_Vectorcall(as_without(self)->callable, args, nargsf, kwnames);
  return as_without(self)->single ? only_item(result) : result;
}

PyObject* without_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"callable", "single", nullptr};
  PyObject* callable;
  int single = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p:without_hook", const_cast<char**>(names), &callable, &single)) {
    return nullptr;
  }
  if (!PyCallable_Check(callable)) return PyErr_Format(PyExc_TypeError, "%R is not callable", callable);
  WithoutHook* wrapper = as_without(type->tp_alloc(type, 0));
  if (wrapper == nullptr) return nullptr;
  wrapper->vectorcall = without_vectorcall;
  wrapper->callable = Py_NewRef(callable);
  wrapper->single = single != 0;
  return reinterpret_cast<PyObject*>(wrapper);
}

int without_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_without(self)->callable);
  return 0;
}

int without_clear(PyObject* self) {
  Py_CLEAR(as_without(self)->callable);
  return 0;
}

void without_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  if (as_without(self)->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  without_clear(self);
  Py_TYPE(self)->tp_free(self);
}

PyObject* without_repr(PyObject* self) {
  return PyUnicode_FromFormat("<without_hook %R>", as_without(self)->callable);
}

PyMemberDef without_members[] = {
    {"__wrapped__", T_OBJECT_EX, offsetof(WithoutHook, callable), READONLY, "The callable itself."},
    {},
};

}  // namespace

PyTypeObject RegionType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.Region",
    .tp_basicsize = sizeof(Region),
    .tp_dealloc = region_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Region(owner)\n\nContext manager: frames entered inside, in this thread, are candidates under `owner`; "
              "with None nothing inside is compiled.",
    .tp_traverse = region_traverse,
    .tp_clear = region_clear,
    .tp_methods = region_methods,
    .tp_new = region_new,
};

PyTypeObject WithoutHookType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.without_hook",
    .tp_basicsize = sizeof(WithoutHook),
    .tp_dealloc = without_dealloc,
    .tp_vectorcall_offset = offsetof(WithoutHook, vectorcall),
    .tp_repr = without_repr,
    .tp_call = PyVectorcall_Call,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "without_hook(callable, *, single=False)\n\nCalls `callable` while no frame in this thread is a candidate: for "
              "backend callables that are Python code. With `single` a call returns the one item of what it returns.",
    .tp_traverse = without_traverse,
    .tp_clear = without_clear,
    .tp_weaklistoffset = offsetof(WithoutHook, weakrefs),
    .tp_members = without_members,
    .tp_new = without_new,
};

bool wraps_function(PyObject* callable) {
  return Py_IS_TYPE(callable, &WithoutHookType) && PyFunction_Check(as_without(callable)->callable);
}

}  // namespace dyncomp
