#include "compat.h"  // first: it opens the interpreter's internals before Python.h is read

#include "hook/evaluator.h"

#include "cache/cell.h"
#include "dispatch/serve.h"
#include "guards/tree.h"
#include "hook/stack.h"
#include "hook/thread.h"

namespace dyncomp {
namespace {

using compat::Frame;

Py_ssize_t active = 0;  // scopes with candidates

// Where ours stands among other evaluators; nullptr means none (then the interpreter's own runs).
_PyFrameEvalFunction base = nullptr;  // was there before ours
_PyFrameEvalFunction over = nullptr;  // came on top of ours, and ours was then installed again on top of it
bool buried = false;                  // an evaluator above still hands frames down to ours

// The frame that this thread has handed to `over`. It hands it back to ours, and then it goes on to `base`.
[[gnu::tls_model("initial-exec")]] thread_local Frame* handed_over = nullptr;

PyObject* run_by_others(PyThreadState* thread, Frame* frame, int throwflag) {
  if (over != nullptr && handed_over != frame) {
    Frame* outer = handed_over;
    handed_over = frame;
    PyObject* result = over(thread, frame, throwflag);
    handed_over = outer;
    return result;
  }
  if (base != nullptr) return base(thread, frame, throwflag);
  return compat::eval_default(thread, frame, throwflag);
}

PyObject* run_plain(PyThreadState* thread, Frame* frame, int throwflag) {
  if (over != nullptr || base != nullptr) [[unlikely]]
    return run_by_others(thread, frame, throwflag);
  return compat::eval_default(thread, frame, throwflag);
}

// A frame that is not replaced. `cell`: of its code, or nullptr.
PyObject* run_frame(PyThreadState* thread, Frame* frame, int throwflag, CodeCell* cell) {
  if (cell != nullptr && cell->ours) return compat::eval_default(thread, frame, throwflag);
  if (cell == nullptr || cell->skip != Skip::calls_too) return run_plain(thread, frame, throwflag);
  Scope quiet(Scope::Mode::quiet, nullptr);
  return run_plain(thread, frame, throwflag);
}

constexpr int kNotOrdinary = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;

// Functions only: no generator of any kind, no class or module body.
bool is_candidate(PyThreadState* thread, Frame* frame, PyCodeObject* code) {
  return (code->co_flags & (kNotOrdinary | CO_OPTIMIZED)) == CO_OPTIMIZED && compat::frame_is_fresh_call(frame) &&
         !compat::tracing(thread, code);
}

Py_ssize_t argument_slots(PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount + ((code->co_flags & CO_VARARGS) != 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0);
}

// Serves a candidate. False: run it plainly. True: `*result` is what the frame returned, and the frame is gone.
bool serve_frame(PyThreadState* thread, Frame* frame, PyCodeObject* code, Owner* owner, PyObject** result) {
  CodeCell* cell = cell_peek(code);
  Cache* cache = cell != nullptr ? cell_find(cell, owner) : nullptr;
  if (cache == nullptr) {
    cache = cell_cache(code, owner);
    if (cache == nullptr) {
      PyErr_Clear();  // out of memory for the cache: the program itself may still run
      return false;
    }
  }
  PyFunctionObject* function = compat::frame_function(frame);
  if (serve(cache, owner, function, frame->localsplus, argument_slots(code), result, true) == Served::plain) return false;
  compat::frame_discard(thread, frame);
  return true;
}

// The frame of `run` has begun and holds its arguments.
void drop_kept() {
  Keeper* keeper = std::exchange(this_thread.keeper, nullptr);
  if (keeper == nullptr) return;
  keeper->captures->drop();
  if (keeper->slots == nullptr) return;
  for (Py_ssize_t i = 0; i < keeper->count; ++i) Py_CLEAR(keeper->slots[i]);
}

// The quick way out for code that was looked at before and is left alone.
bool known_skipped(CodeCell* cell, Owner* owner) {
  if (cell == nullptr) return false;
  if (cell->skip != Skip::no) return true;
  if (cell->slots.empty() || cell->slots[0].owner != owner) return false;
  Cache* cache = cell->slots[0].cache;
  return cache->skipped && cache->entries->empty();
}

PyObject* evaluate(PyThreadState* thread, Frame* frame, int throwflag) {
  Owner* owner = this_thread.owner;
  if (!throwflag && compat::frame_is_discardable(frame) && !stack_has_room()) [[unlikely]] {
    compat::frame_discard(thread, frame);
    return nullptr;
  }
  if (this_thread.compiling) return compat::eval_default(thread, frame, throwflag);
  PyCodeObject* code = compat::frame_code(frame);
  CodeCell* cell = cell_peek(code);
  if (owner == nullptr || throwflag) return run_frame(thread, frame, throwflag, cell);
  if (cell != nullptr && cell->resumes) {  // its frame holds the arguments; the function is not called again
    PyFunction_SetDefaults(reinterpret_cast<PyObject*>(compat::frame_function(frame)), Py_None);
  }
  if (this_thread.passthrough == code) {
    this_thread.passthrough = nullptr;
    drop_kept();
    return run_frame(thread, frame, throwflag, cell);
  }
  if (known_skipped(cell, owner)) return run_frame(thread, frame, throwflag, cell);
  PyObject* result = nullptr;
  if (is_candidate(thread, frame, code) && serve_frame(thread, frame, code, owner, &result)) return result;
  return run_frame(thread, frame, throwflag, cell_peek(code));  // a new cell, or one that the callback has marked
}

// Stands in front of evaluators of others while the compiler or what it generated runs in some thread.
_PyFrameEvalFunction shielded = nullptr;
Py_ssize_t shields = 0;
[[gnu::tls_model("initial-exec")]] thread_local Frame* passed_on = nullptr;  // ends a cycle, if others put us below them

PyObject* shield(PyThreadState* thread, Frame* frame, int throwflag) {
  if (this_thread.compiling || passed_on == frame) return compat::eval_default(thread, frame, throwflag);
  CodeCell* cell = cell_peek(compat::frame_code(frame));
  if (cell != nullptr && cell->ours) return evaluate(thread, frame, throwflag);
  Frame* outer = passed_on;
  passed_on = frame;
  PyObject* result = shielded(thread, frame, throwflag);
  passed_on = outer;
  return result;
}

void install() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (current == evaluate) {  // whoever was above has put ours back
    over = nullptr;
    buried = false;
    return;
  }
  if (current == _PyEval_EvalFrameDefault) {
    base = over = nullptr;
    buried = false;
  } else if (buried) {
    over = current;
  } else {
    base = current;
  }
  _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

// If someone has put another evaluator on top of ours, that one stays; ours goes on passing frames down.
void remove() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate) {
    buried = true;
    return;
  }
  _PyFrameEvalFunction next = over != nullptr ? over : base;
  _PyInterpreterState_SetEvalFrameFunc(interpreter, next != nullptr ? next : _PyEval_EvalFrameDefault);
}

}  // namespace

void evaluator_acquire() {
  if (active++ == 0) install();
}

void evaluator_release() {
  if (--active == 0) remove();
}

bool evaluator_shield_acquire() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  _PyFrameEvalFunction current = _PyInterpreterState_GetEvalFrameFunc(interpreter);
  if (current == _PyEval_EvalFrameDefault || current == evaluate) return false;
  ++shields;
  if (current != shield) {
    shielded = current;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, shield);
  }
  return true;
}

void evaluator_shield_release() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (--shields == 0 && _PyInterpreterState_GetEvalFrameFunc(interpreter) == shield) {
    _PyInterpreterState_SetEvalFrameFunc(interpreter, shielded);
  }
}

bool evaluator_installed() {
  return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) == evaluate;
}

}  // namespace dyncomp
