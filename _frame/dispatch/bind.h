// Argument binding as a Python call does it, into the argument slots of a frame.
#pragma once
#include <Python.h>

#include <vector>

#include "ref.h"

namespace dyncomp {

// What a code object's signature says; plain numbers, read once.
struct Signature {
  explicit Signature(PyCodeObject* code);
  Py_ssize_t positional;       // positional-only included
  Py_ssize_t positional_only;
  Py_ssize_t keyword_only;
  bool varargs, varkeywords;
  Py_ssize_t slots;
  bool simple;                 // positional parameters only: the caller's array is the slot array
};

// The slots of one call. Values are borrowed from the call and from the function's defaults, except the `*args` tuple
// and the `**kwargs` dict, which are made here.
class Binding {
 public:
  Binding() = default;
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;
  ~Binding();

  // False without an exception when Python would raise TypeError, or when binding would have to run Python code: then
  // the function itself is to be called with the same arguments.
  bool bind(const Signature& signature, PyFunctionObject* function, PyObject* const* args, Py_ssize_t nargs,
            PyObject* kwnames);
  PyObject* const* slots() const { return slots_; }

 private:
  bool reserve(Py_ssize_t count);
  bool bind_positional(const Signature& signature, PyObject* const* args, Py_ssize_t nargs);
  bool bind_keywords(const Signature& signature, PyObject* names, PyObject* const* values, PyObject* kwnames);
  bool fill_defaults(const Signature& signature, PyFunctionObject* function, PyObject* names);

  static constexpr Py_ssize_t kSmall = 24;
  PyObject* small_[kSmall];
  PyObject** slots_ = small_;
  Ref varargs_, varkeywords_;
  Ref defaults_;                    // held: a call may replace them on the function
  std::vector<Ref> keyword_values_;  // defaults of keyword-only parameters, held for the same reason
};

}  // namespace dyncomp
