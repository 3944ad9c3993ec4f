#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "dispatch/serve.h"

#include "cache/cell.h"
#include "hook/region.h"
#include "hook/thread.h"
#include "ref.h"
#include "guards/sentinel.h"

namespace dyncomp {

PyObject* serve_eager_once = nullptr;
PyObject* serve_freeze = nullptr;

namespace {

PyObject* miss_callback = nullptr;
PyObject* report_callback = nullptr;
bool all_disabled = false;

// ---- running an entry ---------------------------------------------------------------------------------------------

bool shows_the_users_frame(PyObject* run, PyCodeObject* users) {
  if (!PyFunction_Check(run)) return false;
  PyCodeObject* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(run));
  return code->co_filename == users->co_filename || PyUnicode_Compare(code->co_filename, users->co_filename) == 0;
}

// An exception left compiled code that has no frame of the user's function: adds one to the traceback.
void add_users_frame(PyFunctionObject* function, PyObject* run) {
  PyCodeObject* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const char* name = nullptr;
  const char* filename = nullptr;
  if (!shows_the_users_frame(run, code)) {
    name = PyUnicode_AsUTF8(code->co_name);
    filename = PyUnicode_AsUTF8(code->co_filename);
    PyErr_Clear();
  }
  PyErr_Restore(type, value, traceback);
  if (name != nullptr && filename != nullptr) compat::add_traceback(name, filename, code->co_firstlineno);
}

CodeCell* cell_of(PyObject* function) {
  return PyFunction_Check(function) ? cell_peek(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))) : nullptr;
}

// True for what a broken frame returns: the function that goes on with it.
bool is_continuation(PyObject* result) {
  CodeCell* cell = cell_of(result);
  return cell != nullptr && cell->resumes;
}

// Goes on with a broken frame until it returns; steals `result`. Each part's frame stands on the caller's alone, as the user's own
// does in eager, so that stack levels, tracebacks and local variables are as they are there.
PyObject* go_on(PyObject* result) {
  while (result != nullptr && is_continuation(result)) {
    PyObject* next = result;
    result = PyObject_Vectorcall(next, nullptr, 0, nullptr);
    Py_DECREF(next);
  }
  return result;
}

bool is_machinery(PyTracebackObject* entry) {
  PyCodeObject* code = PyFrame_GetCode(entry->tb_frame);
  CodeCell* cell = cell_peek(code);
  Py_DECREF(code);
  return cell != nullptr && cell->ours && !cell->resumes;
}

// A graph raised and the frame ran again as plain Python: the traceback shows the second run alone. `run` itself stays where
// nothing of the user's follows.
void hide_first_run() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  auto* entry = reinterpret_cast<PyTracebackObject*>(traceback);
  int hidden = 0;
  while (entry != nullptr && is_machinery(entry)) {
    entry = entry->tb_next;
    ++hidden;
  }
  if (hidden > 1 && entry != nullptr) {
    PyObject* shown = Py_NewRef(reinterpret_cast<PyObject*>(entry));
    Py_SETREF(traceback, shown);
    PyException_SetTraceback(value, traceback);
  }
  PyErr_Restore(type, value, traceback);
}

// A frame of Python code counts against the recursion limit by itself, like the frame it stands for.
PyObject* call_run(PyObject* run, PyObject** captures, size_t count) {
  size_t nargsf = count | PY_VECTORCALL_ARGUMENTS_OFFSET;
  if (PyFunction_Check(run)) return PyObject_Vectorcall(run, captures, nargsf, nullptr);
  if (Py_EnterRecursiveCall(" in a compiled call") != 0) return nullptr;
  PyObject* result = PyObject_Vectorcall(run, captures, nargsf, nullptr);
  Py_LeaveRecursiveCall();
  return result;
}

// The argument slots of a call. `given`: they belong to the frame that is replaced.
struct Slots {
  PyObject* const* at;
  Py_ssize_t count;
  bool given;
};

PyObject* run_entry(Entry* entry, Owner* owner, PyFunctionObject* function, Slots slots, Captures& captures) {
  PyObject* run = Py_NewRef(entry->run);
  // A Python function's frame takes references to its arguments before anything runs; holding them too is the larger part of
  // the cost of many captures. Anything else may read its arguments after it ran code that drops them.
  if (!PyFunction_Check(run) && !wraps_function(run)) captures.hold();
  ++entry->hits;
  PyObject* result;
  Shield shield(PyFunction_Check(run));
  if (entry->whole) {
    Scope quiet(Scope::Mode::quiet, nullptr);
    result = call_run(run, captures.data(), captures.count());
  } else {
    Scope candidates(Scope::Mode::candidates, owner);
    Keeper keeper{slots.given ? const_cast<PyObject**>(slots.at) : nullptr, slots.count, &captures};
    if (PyFunction_Check(run)) {
      this_thread.keeper = &keeper;
      this_thread.passthrough = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(run));
    }
    result = call_run(run, captures.data(), captures.count());
    // the parts of a resumed frame are called by who began the frame, so that loops with breaks need no stack
    if (!is_continuation(reinterpret_cast<PyObject*>(function))) result = go_on(result);
  }
  if (result == nullptr) {
    if (PyFunction_Check(run)) hide_first_run();
    add_users_frame(function, run);
  }
  Py_DECREF(run);
  return result;
}

// Runs the first entry whose guards hold; false if there is none.
bool run_match(Cache* cache, Owner* owner, PyFunctionObject* function, Slots slots, PyObject** result) {
  // A guard can, rarely, run a finaliser that changes the cache: the size is read anew and the entry is held.
  for (size_t i = 0; i < cache->entries->size(); ++i) {
    Entry* entry = (*cache->entries)[i];
    Py_INCREF(entry);
    Captures captures;
    if (tree_match(entry->guards, function, slots.at, captures)) {
      if (i > 0 && i < cache->entries->size() && (*cache->entries)[i] == entry) cache_promote(cache, i);
      *result = run_entry(entry, owner, function, slots, captures);
      Py_DECREF(entry);
      return true;
    }
    Py_DECREF(entry);
  }
  return false;
}

// ---- a miss -------------------------------------------------------------------------------------------------------

// Tells of a fault that the call can survive; false with an exception if the listener wants the call to fail.
bool report(const char* kind, PyObject* detail) {
  if (report_callback == nullptr) return true;
  Ref callback = Ref::share(report_callback);
  return static_cast<bool>(Ref::steal(PyObject_CallFunction(callback.get(), "sO", kind, detail)));
}

PyObject* call_callback(Cache* cache, Owner* owner, PyFunctionObject* function, PyObject* const* args,
                        Py_ssize_t count) {
  Ref slots = Ref::steal(PyTuple_New(count));
  if (!slots) return nullptr;
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(slots.get(), i, Py_NewRef(args[i]));
  Ref callback = Ref::share(miss_callback);
  PyObject* values[] = {nullptr, reinterpret_cast<PyObject*>(function), slots.get(), owner->object,
                        reinterpret_cast<PyObject*>(cache)};
  return PyObject_Vectorcall(callback.get(), values + 1, 4 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

// The driver made an entry that does not hold for the very call it was made for. Compiling again would not help.
Served reject_entry(Cache* cache, Entry* entry, PyFunctionObject* function, PyObject* const* args, PyObject** result) {
  cache->skipped = true;
  *result = nullptr;
  Ref why = Ref::steal(tree_explain(entry->guards, function, args));
  if (!why) return Served::done;
  Ref detail = Ref::steal(PyUnicode_FromFormat("%R of %R: %R", entry, function, why.get()));
  if (!detail || !report("guards-fail-after-compile", detail.get())) return Served::done;
  return Served::plain;
}

Served use_answer(PyObject* answer, Cache* cache, Owner* owner, PyFunctionObject* function, Slots slots,
                  PyObject** result) {
  if (answer == serve_eager_once) return Served::plain;
  if (answer == Py_None || answer == serve_freeze) {
    cache->skipped = true;
    return Served::plain;
  }
  if (PyTuple_CheckExact(answer) && PyTuple_GET_SIZE(answer) == 1) {
    *result = Py_NewRef(PyTuple_GET_ITEM(answer, 0));
    return Served::done;
  }
  if (!Py_IS_TYPE(answer, &EntryType)) {
    PyErr_Format(PyExc_TypeError, "the compile callback returned %R, not an Entry or None", answer);
    *result = nullptr;
    return Served::done;
  }
  Entry* entry = reinterpret_cast<Entry*>(answer);
  Captures captures;
  if (!tree_match(entry->guards, function, slots.at, captures)) {
    return reject_entry(cache, entry, function, slots.at, result);
  }
  cache_add(cache, entry);
  *result = run_entry(entry, owner, function, slots, captures);
  return Served::done;
}

Served compile(Cache* cache, Owner* owner, PyFunctionObject* function, Slots slots, PyObject** result) {
  ++cache->misses;
  cache_begin_compile(cache);
  Ref answer;
  {
    Scope off(Scope::Mode::compiling, nullptr);
    answer = Ref::steal(call_callback(cache, owner, function, slots.at, slots.count));
  }
  cache_end_compile(cache);
  if (answer) return use_answer(answer.get(), cache, owner, function, slots, result);
  add_users_frame(function, Py_None);
  *result = nullptr;
  return Served::done;
}

Served miss(Cache* cache, Owner* owner, PyFunctionObject* function, Slots slots, PyObject** result) {
  while (cache->compiling) {
    if (cache->compiler == PyThread_get_thread_ident()) return Served::plain;
    if (!cache_wait_compile()) {
      *result = nullptr;
      return Served::done;
    }
    if (cache->compiling) continue;  // the compile that ended was another one
    if (run_match(cache, owner, function, slots, result)) return Served::done;
  }
  if (cache->skipped || miss_callback == nullptr || owner->object == nullptr) return Served::plain;
  CodeCell* cell = cell_peek(reinterpret_cast<PyCodeObject*>(function->func_code));
  if (cell != nullptr && cell->skip != Skip::no) return Served::plain;
  return compile(cache, owner, function, slots, result);
}

}  // namespace

Served serve(Cache* cache, Owner* owner, PyFunctionObject* function, PyObject* const* args, Py_ssize_t count,
             PyObject** result, bool gives_slots) {
  if (all_disabled) [[unlikely]]
    return Served::plain;
  Py_INCREF(cache);  // a reset or the death of the owner may drop it meanwhile
  Served served = Served::done;
  Slots slots{args, count, gives_slots};
  if (!run_match(cache, owner, function, slots, result)) served = miss(cache, owner, function, slots, result);
  Py_DECREF(cache);
  return served;
}

static PyObject* exchange_callback(PyObject** where, PyObject* callback) {
  PyObject* before = std::exchange(*where, Py_XNewRef(callback));
  return before != nullptr ? before : Py_NewRef(Py_None);
}

PyObject* serve_set_callback(PyObject* callback) { return exchange_callback(&miss_callback, callback); }
PyObject* serve_set_report(PyObject* callback) { return exchange_callback(&report_callback, callback); }
void serve_set_disabled(bool disabled) { all_disabled = disabled; }
bool serve_disabled() { return all_disabled; }

bool serve_init() {
  serve_eager_once = sentinel_new("EAGER_ONCE");
  serve_freeze = sentinel_new("FREEZE");
  return serve_eager_once != nullptr && serve_freeze != nullptr;
}

}  // namespace dyncomp
