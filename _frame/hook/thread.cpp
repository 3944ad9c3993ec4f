#include "hook/thread.h"

#include <new>

#include "hook/evaluator.h"

namespace dyncomp {

thread_local Thread this_thread;

namespace {

// Open `with` blocks of this thread, innermost first. Kept per thread, not in the region objects: blocks that end out
// of order (in generators) still leave the thread as it was before all of them.
struct OpenRegion {
  Owner* owner;  // retained, nullptr for "disabled"
  PyObject* object;  // held, so that entries of the owner stay while it is in force
  Thread saved;
  OpenRegion* outer;
};
[[gnu::tls_model("initial-exec")]] thread_local OpenRegion* open_regions = nullptr;

}  // namespace

Scope::Scope(Mode mode, Owner* owner)
    : saved_(this_thread),
      counted_(mode == Mode::candidates),
      shield_(mode == Mode::compiling) {
  bool disabled = mode >= Mode::disabled || (mode == Mode::quiet && saved_.disabled);
  this_thread = Thread{mode == Mode::candidates ? owner : nullptr, disabled, mode == Mode::compiling, nullptr};
  if (counted_) evaluator_acquire();
}

Scope::~Scope() {
  if (counted_) evaluator_release();
  this_thread = saved_;
}

bool region_enter(Owner* owner) {
  OpenRegion* region = new OpenRegion{nullptr, nullptr, this_thread, open_regions};
  if (owner != nullptr) {
    region->owner = owner_retain(owner);
    region->object = Py_XNewRef(owner->object);
    evaluator_acquire();
  }
  open_regions = region;
  this_thread = Thread{owner, owner == nullptr, false, nullptr};
  return true;
}

bool region_exit() {
  OpenRegion* region = open_regions;
  if (region == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "Region left in a thread that did not enter it");
    return false;
  }
  open_regions = region->outer;
  this_thread = region->saved;
  if (region->owner != nullptr) {
    evaluator_release();
    owner_release(region->owner);
    Py_XDECREF(region->object);
  }
  delete region;
  return true;
}

PyObject* thread_owner() {
  Owner* owner = this_thread.owner;
  return Py_NewRef(owner != nullptr && owner->object != nullptr ? owner->object : Py_None);
}

}  // namespace dyncomp
