#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "dispatch/bind.h"

#include <algorithm>

namespace dyncomp {

Signature::Signature(PyCodeObject* code)
    : positional(code->co_argcount),
      positional_only(code->co_posonlyargcount),
      keyword_only(code->co_kwonlyargcount),
      varargs((code->co_flags & CO_VARARGS) != 0),
      varkeywords((code->co_flags & CO_VARKEYWORDS) != 0),
      slots(positional + keyword_only + varargs + varkeywords),
      simple(keyword_only == 0 && !varargs && !varkeywords) {}

Binding::~Binding() {
  if (slots_ != small_) PyMem_Free(slots_);
}

bool Binding::reserve(Py_ssize_t count) {
  if (count > kSmall) {
    slots_ = static_cast<PyObject**>(PyMem_Malloc(static_cast<size_t>(count) * sizeof(PyObject*)));
    if (slots_ == nullptr) {
      slots_ = small_;
      return false;
    }
  }
  std::fill_n(slots_, count, nullptr);
  return true;
}

bool Binding::bind_positional(const Signature& signature, PyObject* const* args, Py_ssize_t nargs) {
  Py_ssize_t named = std::min(nargs, signature.positional);
  std::copy_n(args, named, slots_);
  if (!signature.varargs) return nargs == named;
  varargs_ = Ref::steal(PyTuple_New(nargs - named));
  if (!varargs_) return false;
  for (Py_ssize_t i = named; i < nargs; ++i) PyTuple_SET_ITEM(varargs_.get(), i - named, Py_NewRef(args[i]));
  slots_[signature.positional + signature.keyword_only] = varargs_.get();
  return true;
}

// Index of a keyword among the parameters that can be passed by name; -1 if it is none of them.
static Py_ssize_t find_parameter(const Signature& signature, PyObject* names, PyObject* keyword) {
  Py_ssize_t end = signature.positional + signature.keyword_only;
  for (Py_ssize_t i = signature.positional_only; i < end; ++i) {
    if (PyTuple_GET_ITEM(names, i) == keyword) return i;
  }
  for (Py_ssize_t i = signature.positional_only; i < end; ++i) {
    if (PyUnicode_Compare(PyTuple_GET_ITEM(names, i), keyword) == 0) return i;
  }
  return -1;
}

bool Binding::bind_keywords(const Signature& signature, PyObject* names, PyObject* const* values, PyObject* kwnames) {
  Py_ssize_t count = kwnames != nullptr ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, i);
    if (!PyUnicode_CheckExact(keyword)) return false;  // a str subclass may define `==` in Python
    Py_ssize_t slot = find_parameter(signature, names, keyword);
    if (slot >= 0) {
      if (slots_[slot] != nullptr) return false;
      slots_[slot] = values[i];
      continue;
    }
    if (!varkeywords_ || PyDict_Contains(varkeywords_.get(), keyword) != 0) return false;
    if (PyDict_SetItem(varkeywords_.get(), keyword, values[i]) < 0) return false;
  }
  return true;
}

bool Binding::fill_defaults(const Signature& signature, PyFunctionObject* function, PyObject* names) {
  defaults_ = Ref::share(function->func_defaults);
  Py_ssize_t count = defaults_ ? PyTuple_GET_SIZE(defaults_.get()) : 0;
  for (Py_ssize_t i = 0; i < signature.positional; ++i) {
    if (slots_[i] != nullptr) continue;
    Py_ssize_t at = i - (signature.positional - count);
    if (at < 0) return false;
    slots_[i] = PyTuple_GET_ITEM(defaults_.get(), at);
  }
  PyObject* by_name = function->func_kwdefaults;
  for (Py_ssize_t i = signature.positional; i < signature.positional + signature.keyword_only; ++i) {
    if (slots_[i] != nullptr) continue;
    slots_[i] = by_name != nullptr ? PyDict_GetItemWithError(by_name, PyTuple_GET_ITEM(names, i)) : nullptr;
    if (slots_[i] == nullptr) return false;
    keyword_values_.push_back(Ref::share(slots_[i]));
  }
  return true;
}

bool Binding::bind(const Signature& signature, PyFunctionObject* function, PyObject* const* args, Py_ssize_t nargs,
                   PyObject* kwnames) {
  PyCodeObject* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  PyObject* names = code->co_localsplusnames;  // parameters come first, in slot order
  bool bound = reserve(signature.slots);
  if (bound && signature.varkeywords) {
    varkeywords_ = Ref::steal(PyDict_New());
    bound = static_cast<bool>(varkeywords_);
    if (bound) slots_[signature.slots - 1] = varkeywords_.get();
  }
  bound = bound && bind_positional(signature, args, nargs) && bind_keywords(signature, names, args + nargs, kwnames) &&
          fill_defaults(signature, function, names);
  if (!bound) PyErr_Clear();
  return bound;
}

}  // namespace dyncomp
