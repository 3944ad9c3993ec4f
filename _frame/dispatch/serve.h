// What the hook and the Dispatcher share: find an entry whose guards hold and run it, or have one compiled.
#pragma once
#include <Python.h>

#include "cache/cache.h"
#include "cache/owner.h"

namespace dyncomp {

enum class Served {
  done,   // `*result` is the call's result; nullptr: it raised
  plain,  // the caller runs the function as plain Python
};

// `args`: the argument slots at frame entry (borrowed, kept alive by the caller). `*result`: a new reference.
Served serve(Cache* cache, Owner* owner, PyFunctionObject* function, PyObject* const* args, Py_ssize_t count,
             PyObject** result, bool gives_slots = false);

// Python side of a miss and of internal faults: borrowed, nullptr for none. They return the one before (new reference).
PyObject* serve_set_callback(PyObject* callback);
PyObject* serve_set_report(PyObject* callback);
// While true every call runs as plain Python.
void serve_set_disabled(bool disabled);
bool serve_disabled();
// Answers of the callback besides an Entry and None: run this one call as plain Python; keep the entries but ask no more.
extern PyObject* serve_eager_once;
extern PyObject* serve_freeze;
bool serve_init();

}  // namespace dyncomp
