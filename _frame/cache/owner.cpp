#include "cache/owner.h"

#include <new>
#include <unordered_map>

#include "cache/cell.h"

namespace dyncomp {
namespace {

std::unordered_map<PyObject*, Owner*>& owners() {
  static auto* map = new std::unordered_map<PyObject*, Owner*>;  // never destroyed: used until the interpreter ends
  return *map;
}

// Called by the weak reference when the owner's object dies: its entries can never match again.
PyObject* owner_died(PyObject* capsule, PyObject*) {
  Owner* owner = static_cast<Owner*>(PyCapsule_GetPointer(capsule, nullptr));
  if (owner == nullptr) return nullptr;
  owner_retain(owner);
  owners().erase(owner->object);
  owner->object = nullptr;
  cells_forget_owner(owner);
  owner_release(owner);
  Py_RETURN_NONE;
}

PyMethodDef owner_died_method = {"owner_died", owner_died, METH_O, nullptr};

PyObject* watch(Owner* owner, PyObject* object) {
  PyObject* capsule = PyCapsule_New(owner, nullptr, nullptr);
  if (capsule == nullptr) return nullptr;
  PyObject* callback = PyCFunction_New(&owner_died_method, capsule);
  Py_DECREF(capsule);
  if (callback == nullptr) return nullptr;
  PyObject* weak = PyWeakref_NewRef(object, callback);
  Py_DECREF(callback);
  return weak;
}

}  // namespace

Owner* owner_intern(PyObject* object) {
  auto found = owners().find(object);
  if (found != owners().end()) return owner_retain(found->second);
  Owner* owner = new Owner{1, object, nullptr};
  owner->weak = watch(owner, object);
  if (owner->weak == nullptr) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
      delete owner;
      return nullptr;
    }
    PyErr_Clear();
    Py_INCREF(object);
  }
  owners().emplace(object, owner);
  return owner;
}

void owner_release(Owner* owner) {
  if (--owner->references > 0) return;
  PyObject* held = owner->weak == nullptr ? owner->object : nullptr;
  if (owner->object != nullptr) owners().erase(owner->object);
  PyObject* weak = owner->weak;
  delete owner;
  Py_XDECREF(weak);  // no callback: the weak reference dies first
  Py_XDECREF(held);
}

}  // namespace dyncomp
