#include "dispatch/dispatcher.h"

#include <structmember.h>

#include <utility>

#include "cache/cache.h"
#include "cache/owner.h"
#include "dispatch/bind.h"
#include "dispatch/serve.h"
#include "hook/thread.h"

namespace dyncomp {
namespace {

struct Dispatcher {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyFunctionObject* function;
  PyObject* code;  // held: the function's code that `signature` and the entries are about
  Signature* signature;
  PyObject* owner_object;
  Owner* owner;  // retained
  Cache* cache;  // held
  PyObject* dict;
  PyObject* weakrefs;
  bool region;     // frames that the function enters when it runs as plain Python are candidates
};

Dispatcher* as_dispatcher(PyObject* self) { return reinterpret_cast<Dispatcher*>(self); }

// ---- calling ------------------------------------------------------------------------------------------------------

PyObject* call_plain(Dispatcher* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* function = reinterpret_cast<PyObject*>(self->function);
  if (!self->region || this_thread.disabled || serve_disabled()) {
    return PyObject_Vectorcall(function, args, nargsf, kwnames);
  }
  Scope candidates(Scope::Mode::candidates, self->owner);
  this_thread.passthrough = reinterpret_cast<PyCodeObject*>(self->code);  // its own frame has just been decided
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}

// Entries belong to the code they were made from. After `function.__code__ = ...` they are worthless.
void follow_code(Dispatcher* self) {
  PyObject* code = self->function->func_code;
  *self->signature = Signature(reinterpret_cast<PyCodeObject*>(code));
  Py_XSETREF(self->code, Py_NewRef(code));
  cache_clear(self->cache);
}

PyObject* call_bound(Dispatcher* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* result = nullptr;
  Binding binding;
  bool bound = binding.bind(*self->signature, self->function, args, PyVectorcall_NARGS(nargsf), kwnames);
  if (bound && serve(self->cache, self->owner, self->function, binding.slots(), self->signature->slots, &result) ==
                   Served::done) {
    return result;
  }
  return call_plain(self, args, nargsf, kwnames);
}

constexpr int kNotOrdinary = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;

PyObject* dispatcher_vectorcall(PyObject* object, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  Dispatcher* self = as_dispatcher(object);
  if (this_thread.disabled) [[unlikely]]
    return call_plain(self, args, nargsf, kwnames);
  if (self->function->func_code != self->code) [[unlikely]]
    follow_code(self);
  if ((reinterpret_cast<PyCodeObject*>(self->code)->co_flags & kNotOrdinary) != 0) [[unlikely]]
    return call_plain(self, args, nargsf, kwnames);
  const Signature& signature = *self->signature;
  Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
  if (kwnames != nullptr || !signature.simple || nargs != signature.positional) {
    return call_bound(self, args, nargsf, kwnames);
  }
  PyObject* result = nullptr;
  if (serve(self->cache, self->owner, self->function, args, nargs, &result) == Served::done) return result;
  return call_plain(self, args, nargsf, kwnames);
}

// ---- making -------------------------------------------------------------------------------------------------------

// What functools.wraps copies; anything else is looked up on the function (see `dispatcher_getattro`).
bool copy_attributes(Dispatcher* self) {
  static const char* names[] = {"__module__", "__name__", "__qualname__", "__doc__", "__annotations__"};
  PyObject* function = reinterpret_cast<PyObject*>(self->function);
  self->dict = PyDict_New();
  if (self->dict == nullptr) return false;
  for (const char* name : names) {
    Ref value = Ref::steal(PyObject_GetAttrString(function, name));
    if (!value || PyDict_SetItemString(self->dict, name, value.get()) < 0) return false;
  }
  if (self->function->func_dict != nullptr && PyDict_Update(self->dict, self->function->func_dict) < 0) return false;
  return PyDict_SetItemString(self->dict, "__wrapped__", function) == 0;
}

PyObject* dispatcher_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "owner", "cache", "region", nullptr};
  PyObject *function, *owner, *cache = Py_None;
  int region = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|O$p:Dispatcher", const_cast<char**>(names), &PyFunction_Type,
                                   &function, &owner, &cache, &region)) {
    return nullptr;
  }
  if (cache != Py_None && !Py_IS_TYPE(cache, &CacheType)) {
    return PyErr_Format(PyExc_TypeError, "cache must be a Cache or None, not %R", cache);
  }
  Ref object = Ref::steal(type->tp_alloc(type, 0));
  if (!object) return nullptr;
  Dispatcher* self = as_dispatcher(object.get());
  self->vectorcall = dispatcher_vectorcall;
  self->function = reinterpret_cast<PyFunctionObject*>(Py_NewRef(function));
  self->code = Py_NewRef(self->function->func_code);
  self->signature = new Signature(reinterpret_cast<PyCodeObject*>(self->code));
  self->owner_object = Py_NewRef(owner);
  self->region = region != 0;
  self->owner = owner_intern(owner);
  self->cache = cache != Py_None ? reinterpret_cast<Cache*>(Py_NewRef(cache)) : cache_new();
  if (self->owner == nullptr || self->cache == nullptr || !copy_attributes(self)) return nullptr;
  return object.release();
}

int dispatcher_traverse(PyObject* object, visitproc visit, void* arg) {
  Dispatcher* self = as_dispatcher(object);
  Py_VISIT(self->function);
  Py_VISIT(self->code);
  Py_VISIT(self->owner_object);
  Py_VISIT(self->cache);
  Py_VISIT(self->dict);
  return 0;
}

int dispatcher_clear(PyObject* object) {
  Dispatcher* self = as_dispatcher(object);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->cache);
  Py_CLEAR(self->owner_object);
  Py_CLEAR(self->function);
  Py_CLEAR(self->code);
  return 0;
}

void dispatcher_dealloc(PyObject* object) {
  Dispatcher* self = as_dispatcher(object);
  PyObject_GC_UnTrack(object);
  if (self->weakrefs != nullptr) PyObject_ClearWeakRefs(object);
  dispatcher_clear(object);
  if (Owner* owner = std::exchange(self->owner, nullptr)) owner_release(owner);
  delete self->signature;
  Py_TYPE(object)->tp_free(object);
}

// ---- looking like the function ------------------------------------------------------------------------------------

PyObject* dispatcher_getattro(PyObject* object, PyObject* name) {
  PyObject* value = PyObject_GenericGetAttr(object, name);
  if (value != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<PyObject*>(as_dispatcher(object)->function), name);
}

PyObject* dispatcher_descr_get(PyObject* object, PyObject* instance, PyObject*) {
  if (instance == nullptr || instance == Py_None) return Py_NewRef(object);
  return PyMethod_New(object, instance);
}

PyObject* dispatcher_repr(PyObject* object) {
  return PyUnicode_FromFormat("<compiled %R>", as_dispatcher(object)->function);
}

PyMemberDef members[] = {
    {"owner", T_OBJECT_EX, offsetof(Dispatcher, owner_object), READONLY, "The options in force."},
    {"cache", T_OBJECT_EX, offsetof(Dispatcher, cache), READONLY, "The Cache of the entries."},
    {},
};

PyGetSetDef properties[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {},
};

}  // namespace

PyTypeObject DispatcherType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.Dispatcher",
    .tp_basicsize = sizeof(Dispatcher),
    .tp_dealloc = dispatcher_dealloc,
    .tp_vectorcall_offset = offsetof(Dispatcher, vectorcall),
    .tp_repr = dispatcher_repr,
    .tp_call = PyVectorcall_Call,
    .tp_getattro = dispatcher_getattro,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_doc = "Dispatcher(func, owner, cache=None, *, region=True)\n\nStands for `func`: calls compiled code when guards "
              "hold, without a Python frame. Its entries are in `cache`, its own unless given, apart from those of the frame hook.",
    .tp_traverse = dispatcher_traverse,
    .tp_clear = dispatcher_clear,
    .tp_weaklistoffset = offsetof(Dispatcher, weakrefs),
    .tp_members = members,
    .tp_getset = properties,
    .tp_descr_get = dispatcher_descr_get,
    .tp_dictoffset = offsetof(Dispatcher, dict),
    .tp_new = dispatcher_new,
};

}  // namespace dyncomp
