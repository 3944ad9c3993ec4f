// One compiled version of a function: guards, and what to call when they hold. Python name: `_core.Entry`.
#pragma once
#include <Python.h>

#include "guards/tree.h"

namespace dyncomp {

struct Entry {
  PyObject_HEAD
  GuardTree* guards;
  PyObject* run;  // swapped by `set_run`; a call holds the one it started with
  PyObject* name;
  PyObject* info;
  Py_ssize_t hits;
  bool whole;
};

extern PyTypeObject EntryType;

}  // namespace dyncomp
