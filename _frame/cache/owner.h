// Who entries belong to. An owner is any Python object; it is interned, so that the hot path compares one pointer,
// and held weakly where it can be, so that caches on long-lived code objects do not keep it alive.
#pragma once
#include <Python.h>

namespace dyncomp {

struct Owner {
  Py_ssize_t references;
  PyObject* object;  // address for look-up; nullptr once the object died
  PyObject* weak;    // weak reference, or nullptr: then `object` is held
};

// Creates or finds the owner record of `object`: a new reference, nullptr with an exception on failure.
Owner* owner_intern(PyObject* object);
inline Owner* owner_retain(Owner* owner) {
  ++owner->references;
  return owner;
}
void owner_release(Owner* owner);

}  // namespace dyncomp
