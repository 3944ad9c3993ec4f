// The thread's switch: under which owner frames are candidates for compiling now, if any.
#pragma once
#include <Python.h>

#include "cache/owner.h"
#include "hook/evaluator.h"

namespace dyncomp {

class Captures;

// What is kept for the frame of a `run` alone: its captures, and the argument slots of the frame that it replaces (nullptr if
// they are not ours). Dropped when the new frame holds its arguments, so that objects live as long as they do in eager.
struct Keeper {
  PyObject** slots;
  Py_ssize_t count;
  Captures* captures;
};

struct Thread {
  Owner* owner = nullptr;              // frames are candidates under this owner; nullptr: none is
  bool disabled = false;               // nothing is compiled, not even what a Dispatcher calls
  bool compiling = false;              // the compiler's own frames: other evaluators do not get to see them
  PyCodeObject* passthrough = nullptr;  // the next frame of this code is run by us: leave it alone
  Keeper* keeper = nullptr;             // of that frame
};

[[gnu::tls_model("initial-exec")]] extern thread_local Thread this_thread;

// Keeps evaluators of others from the compiler's own frames for a C++ scope, if there are such evaluators.
class Shield {
 public:
  explicit Shield(bool wanted) : raised_(wanted && evaluator_shield_acquire()) {}
  ~Shield() {
    if (raised_) evaluator_shield_release();
  }
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;

 private:
  bool raised_;
};

// Sets the switch for a C++ scope. The owner must outlive it.
class Scope {
 public:
  enum class Mode { candidates, quiet, disabled, compiling };
  // candidates: under `owner`; quiet: no frame is a candidate; disabled: nothing at all is compiled; compiling: the same,
  // and no other frame evaluator (another compiler) takes part.
  Scope(Mode mode, Owner* owner);
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Thread saved_;
  bool counted_;
  Shield shield_;
};

// The same as a pair of calls, nested per thread: for `with` blocks. `enter` with nullptr: disabled.
bool region_enter(Owner* owner);  // retains; false with an exception
bool region_exit();               // false with an exception if there is none

// The owner in force in this thread: a new reference, None if no frame is a candidate.
PyObject* thread_owner();

}  // namespace dyncomp
