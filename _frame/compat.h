// What differs between CPython 3.11, 3.12 and 3.13, behind names that say the operation.
// The only file that tests PY_VERSION_HEX, and the only one that opens the interpreter's internal headers.
#pragma once
#define PY_SSIZE_T_CLEAN
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <Python.h>
#undef HAVE_STD_ATOMIC  // the internal headers' C11 atomics do not compile as C++; the builtins do
extern "C" {
#include "internal/pycore_ceval.h"
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#include "internal/pycore_interp.h"
#include "internal/pycore_object.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_traceback.h"
#endif
}
#undef Py_BUILD_CORE

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "dyncomp supports CPython 3.11, 3.12 and 3.13"
#endif
#ifdef Py_GIL_DISABLED
#error "dyncomp needs a CPython build with the GIL"
#endif

namespace dyncomp::compat {

using Frame = _PyInterpreterFrame;

// ---- frames -------------------------------------------------------------------------------------------------------

inline PyCodeObject* frame_code(const Frame* frame) {  // borrowed
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

inline PyFunctionObject* frame_function(const Frame* frame) {  // borrowed
#if PY_VERSION_HEX >= 0x030C0000
  return reinterpret_cast<PyFunctionObject*>(frame->f_funcobj);
#else
  return frame->f_func;
#endif
}

// True for a frame (a call, a class or module body) that no frame object or generator shares.
inline bool frame_is_discardable(const Frame* frame) {
  return frame->owner == FRAME_OWNED_BY_THREAD && frame->frame_obj == nullptr;
}

// True for an ordinary function call that nothing has looked at yet: only such a frame can be replaced.
inline bool frame_is_fresh_call(const Frame* frame) {
  return frame_is_discardable(frame) && frame->f_locals == nullptr;
}

// Runs the interpreter on a frame. A hook makes every Python call a C call, which 3.12 and 3.13 count against a
// small fixed limit that plain Python calls do not touch; the count is given back (`stack.h` watches the real stack).
inline PyObject* eval_default(PyThreadState* thread, Frame* frame, int throwflag) {
#if PY_VERSION_HEX >= 0x030C0000
  thread->c_recursion_remaining += 2;
  PyObject* result = _PyEval_EvalFrameDefault(thread, frame, throwflag);
  thread->c_recursion_remaining -= 2;
  return result;
#else
  return _PyEval_EvalFrameDefault(thread, frame, throwflag);
#endif
}

// Frees a discardable frame that was not run. On 3.11 the caller of the evaluator does it; on 3.12 the evaluator does it by
// a function that is not exported.
inline void frame_discard(PyThreadState* thread, Frame* frame) {
#if PY_VERSION_HEX >= 0x030D0000
  _PyEval_FrameClearAndPop(thread, frame);
#elif PY_VERSION_HEX >= 0x030C0000
  thread->c_recursion_remaining--;
  int count = frame->stacktop;
  frame->stacktop = 0;
  for (int i = 0; i < count; i++) Py_XDECREF(frame->localsplus[i]);
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
  Py_DECREF(frame->f_code);
  thread->c_recursion_remaining++;
  PyObject** base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = thread->datastack_chunk;
  if (base != &chunk->data[0]) {
    thread->datastack_top = base;
    return;
  }
  _PyStackChunk* previous = chunk->previous;
  thread->datastack_top = &previous->data[previous->top];
  thread->datastack_chunk = previous;
  PyObjectArenaAllocator arena;
  PyObject_GetArenaAllocator(&arena);
  arena.free(arena.ctx, chunk, chunk->size);
  thread->datastack_limit = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(previous) + previous->size);
#else
  (void)thread;
  (void)frame;
#endif
}

inline Py_ssize_t code_extra_index(freefunc free) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Eval_RequestCodeExtraIndex(free);
#else
  return _PyEval_RequestCodeExtraIndex(free);
#endif
}

inline int code_extra_set(PyCodeObject* code, Py_ssize_t index, void* value) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
#else
  return _PyCode_SetExtra(reinterpret_cast<PyObject*>(code), index, value);
#endif
}

inline int code_extra_get(PyCodeObject* code, Py_ssize_t index, void** value) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_GetExtra(reinterpret_cast<PyObject*>(code), index, value);
#else
  return _PyCode_GetExtra(reinterpret_cast<PyObject*>(code), index, value);
#endif
}

// The same without a call, for the hook's hot path (`code_extra_layout_holds` is asserted at import).
inline void* code_extra_peek(PyCodeObject* code, Py_ssize_t index) {
  struct Extra {
    Py_ssize_t size;
    void* slots[1];
  };
  Extra* extra = static_cast<Extra*>(code->co_extra);
  return extra != nullptr && index < extra->size ? extra->slots[index] : nullptr;
}

// ---- tracing ------------------------------------------------------------------------------------------------------

#if PY_VERSION_HEX >= 0x030C0000
template <typename Monitors>
inline bool any_tool(const Monitors& monitors) {
  uint8_t any = 0;
  for (uint8_t tools : monitors.tools) any |= tools;
  return any != 0;
}
#endif

// True while a trace function, a profile function or (3.12 on) a sys.monitoring tool wants to see this code run.
inline bool tracing(PyThreadState* thread, PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030C0000
  if (thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr) return true;
  if (any_tool(thread->interp->monitors)) return true;
  return code->_co_monitoring != nullptr && any_tool(code->_co_monitoring->local_monitors);
#else
  (void)code;
  return thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr;
#endif
}

inline void add_traceback(const char* function, const char* filename, int line) {
  _PyTraceback_Add(function, filename, line);
}

inline bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// ---- types --------------------------------------------------------------------------------------------------------

// A number that changes whenever the type's or its bases' attributes change; 0 when there is none now.
inline unsigned int type_version(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) != 0 ? type->tp_version_tag : 0;
}

// ---- dicts --------------------------------------------------------------------------------------------------------

// `object.__dict__` as the interpreter stores it; made if the object has room for one. Borrowed; nullptr without error
// when there is none.
inline PyObject* instance_dict(PyObject* object) {
  if ((Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* made = reinterpret_cast<PyObject*>(_PyObject_ManagedDictPointer(object)->dict);
#elif PY_VERSION_HEX >= 0x030C0000
    PyDictOrValues stored = *_PyObject_DictOrValuesPointer(object);
    PyObject* made = _PyDictOrValues_IsValues(stored) ? nullptr : stored.dict;
#else
    PyObject* made = *_PyObject_ManagedDictPointer(object);
#endif
    if (made != nullptr) return made;
  }
  PyObject** where = _PyObject_GetDictPtr(object);
  if (where == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  if (*where == nullptr) {
    PyObject* made = PyObject_GenericGetDict(object, nullptr);
    if (made == nullptr) {
      PyErr_Clear();
      return nullptr;
    }
    Py_DECREF(made);  // the object holds it
    where = _PyObject_GetDictPtr(object);
  }
  return *where;
}

// A number that no two states of any dicts share: while it stays, so do the dict's keys and the objects under them. 0: this
// dict has none (3.13 stores attributes into an instance's own values without telling the dict over them).
inline uint64_t dict_version(PyObject* dict) {
  PyDictObject* object = reinterpret_cast<PyDictObject*>(dict);
#if PY_VERSION_HEX >= 0x030D0000
  if (object->ma_values != nullptr) return 0;
#endif
  return object->ma_version_tag;
}

inline Py_ssize_t dict_slots(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_keys->dk_nentries; }

// Key in an entry slot (borrowed; nullptr for a hole or past the end). A key can be there without a value.
inline PyObject* dict_slot_key(PyObject* dict, Py_ssize_t slot) {
  PyDictKeysObject* keys = reinterpret_cast<PyDictObject*>(dict)->ma_keys;
  if (slot >= keys->dk_nentries) return nullptr;
  return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[slot].me_key : DK_ENTRIES(keys)[slot].me_key;
}

// Value in an entry slot below `dict_slots` (borrowed; nullptr for none). Dicts of instances may keep it elsewhere.
inline PyObject* dict_slot_value(PyObject* dict, Py_ssize_t slot) {
  PyDictObject* object = reinterpret_cast<PyDictObject*>(dict);
  if (object->ma_values != nullptr) return object->ma_values->values[slot];
  PyDictKeysObject* keys = object->ma_keys;
  return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[slot].me_value : DK_ENTRIES(keys)[slot].me_value;
}

}  // namespace dyncomp::compat
