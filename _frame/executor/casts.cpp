// Casts of weights that outlive one graph.
//
//   CastingCall(call, ((1, torch.bfloat16),))(x, w)      ->      call(x, w, the cast of w that autocast's cache has)
#include "executor/casts.h"

#include <structmember.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include "executor/text.h"

namespace dyncomp::executor {

namespace {

struct Cast {
  Py_ssize_t input;
  at::ScalarType dtype;
};

struct CastingCallObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* call;   // owned
  PyObject* other;  // owned: called where the cache has another cast
  PyObject* given;  // owned: the casts as they were given
  std::vector<Cast>* casts;
  PyObject* weakrefs;
};

CastingCallObject* object_of(PyObject* self) { return reinterpret_cast<CastingCallObject*>(self); }

at::Tensor cast_of(const at::Tensor& tensor, at::ScalarType dtype) {
  at::DeviceType device = tensor.device().type();
  // The casts of an operation are made with autocast switched off, as its kernel does.
  c10::impl::ExcludeDispatchKeyGuard off(at::autocast::get_autocast_dispatch_key_from_device_type(device));
  return at::autocast::cached_cast(dtype, tensor, device);
}

PyObject* call_casting(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* names) {
  HANDLE_TH_ERRORS
  CastingCallObject* own = object_of(self);
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  TORCH_CHECK_TYPE(names == nullptr || PyTuple_GET_SIZE(names) == 0, "a compiled call takes no keyword arguments");
  std::vector<PyObject*> all(args, args + count);  // borrowed
  std::vector<py::object> made;                    // owns the casts while the call runs
  all.reserve(all.size() + own->casts->size());
  made.reserve(own->casts->size());
  for (const Cast& cast : *own->casts) {
    TORCH_CHECK_TYPE(cast.input < count && THPVariable_Check(args[cast.input]), "input ", text(cast.input), " of a compiled call must be a tensor");
    at::Tensor tensor = cast_of(THPVariable_Unpack(args[cast.input]), cast.dtype);
    if (tensor.scalar_type() != cast.dtype) {  // the cache knows one cast of a weight, whatever dtype is asked for
      return PyObject_Vectorcall(own->other, args, static_cast<std::size_t>(count), nullptr);
    }
    PyObject* object = THPVariable_Wrap(std::move(tensor));
    if (object == nullptr) {
      return nullptr;
    }
    made.push_back(py::reinterpret_steal<py::object>(object));
    all.push_back(object);
  }
  return PyObject_Vectorcall(own->call, all.data(), all.size(), nullptr);
  END_HANDLE_TH_ERRORS
}

PyObject* new_casting_call(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  static const char* names[] = {"call", "casts", "other", nullptr};
  PyObject *call, *given, *other;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O:CastingCall", const_cast<char**>(names), &call, &PyTuple_Type, &given, &other)) {
    return nullptr;
  }
  auto casts = std::make_unique<std::vector<Cast>>();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
    PyObject *dtype = nullptr;
    Py_ssize_t input = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "nO", &input, &dtype)) {
      return nullptr;
    }
    if (!THPDtype_Check(dtype) || input < 0) {
      PyErr_SetString(PyExc_TypeError, "a cast is a pair (input, torch.dtype)");
      return nullptr;
    }
    casts->push_back({input, reinterpret_cast<THPDtype*>(dtype)->scalar_type});
  }
  auto* self = reinterpret_cast<CastingCallObject*>(type->tp_alloc(type, 0));
  if (self == nullptr) {
    return nullptr;
  }
  self->vectorcall = call_casting;
  self->call = Py_NewRef(call);
  self->other = Py_NewRef(other);
  self->given = Py_NewRef(given);
  self->casts = casts.release();
  return reinterpret_cast<PyObject*>(self);
  END_HANDLE_TH_ERRORS
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(object_of(self)->call);
  Py_VISIT(object_of(self)->other);
  Py_VISIT(object_of(self)->given);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(object_of(self)->call);
  Py_CLEAR(object_of(self)->other);
  Py_CLEAR(object_of(self)->given);
  return 0;
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (object_of(self)->weakrefs != nullptr) {
    PyObject_ClearWeakRefs(self);
  }
  clear(self);
  delete object_of(self)->casts;
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(CastingCallObject, vectorcall), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(CastingCallObject, weakrefs), READONLY, nullptr},
    {"call", T_OBJECT, offsetof(CastingCallObject, call), READONLY, "what is called with the inputs and the casts"},
    {"casts", T_OBJECT, offsetof(CastingCallObject, given), READONLY, "pairs (input, dtype)"},
    {nullptr, 0, 0, 0, nullptr},
};

const char doc[] =
    "CastingCall(call, casts, other)\n--\n\nCalls `call` with its inputs and, after them, for each pair (input, dtype) of `casts` the cast of that input that\n"
    "autocast's cache has, which is made where it has none. `other` is called with the inputs where the cache has one of another dtype.";

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>(doc)},
    {Py_tp_new, reinterpret_cast<void*>(new_casting_call)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(clear)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_members, members},
    {0, nullptr},
};

PyType_Spec spec = {"dyncomp._frame._exec.CastingCall", sizeof(CastingCallObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE, slots};

}  // namespace

PyObject* cached_cast(PyObject* tensor, PyObject* dtype) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor) && THPDtype_Check(dtype), "cached_cast takes a tensor and a dtype");
  return THPVariable_Wrap(cast_of(THPVariable_Unpack(tensor), reinterpret_cast<THPDtype*>(dtype)->scalar_type));
  END_HANDLE_TH_ERRORS
}

PyObject* make_casting_call_type() { return PyType_FromSpec(&spec); }

}  // namespace dyncomp::executor
