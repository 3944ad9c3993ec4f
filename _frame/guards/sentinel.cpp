#include "guards/sentinel.h"

namespace dyncomp {
namespace {

struct Sentinel {
  PyObject_HEAD
  const char* name;
};

const char* name_of(PyObject* self) { return reinterpret_cast<Sentinel*>(self)->name; }

PyObject* sentinel_repr(PyObject* self) { return PyUnicode_FromString(name_of(self)); }

}  // namespace

PyTypeObject SentinelType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.Sentinel",
    .tp_basicsize = sizeof(Sentinel),
    .tp_repr = sentinel_repr,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A unique named value.",
};

PyObject* sentinel_new(const char* name) {
  if (PyType_Ready(&SentinelType) < 0) return nullptr;
  PyObject* object = PyType_GenericAlloc(&SentinelType, 0);
  if (object != nullptr) reinterpret_cast<Sentinel*>(object)->name = name;
  return object;
}

}  // namespace dyncomp
