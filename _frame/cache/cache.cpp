#include "cache/cache.h"

#include <structmember.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

namespace dyncomp {
namespace {

Cache* all_caches = nullptr;

// The end of any compile wakes all waiters; each looks at its own cache again. Never destroyed: threads may still wait
// when the process ends, and a forked child makes a new one.
struct CompileEnd {
  std::mutex mutex;
  std::condition_variable happened;
  unsigned long count = 0;
};
CompileEnd* compile_end = new CompileEnd;

Cache* as_cache(PyObject* self) { return reinterpret_cast<Cache*>(self); }

void link(Cache* cache) {
  cache->previous = nullptr;
  cache->next = all_caches;
  if (all_caches != nullptr) all_caches->previous = cache;
  all_caches = cache;
}

void unlink(Cache* cache) {
  if (cache->previous != nullptr) cache->previous->next = cache->next;
  if (cache->next != nullptr) cache->next->previous = cache->previous;
  if (all_caches == cache) all_caches = cache->next;
}

void drop_entries(Cache* cache) {
  std::vector<Entry*> dropped;
  dropped.swap(*cache->entries);
  for (Entry* entry : dropped) Py_DECREF(entry);
}

PyObject* cache_type_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":Cache", const_cast<char**>(names))) return nullptr;
  return reinterpret_cast<PyObject*>(cache_new());
}

int cache_traverse(PyObject* self, visitproc visit, void* arg) {
  for (Entry* entry : *as_cache(self)->entries) Py_VISIT(entry);
  return 0;
}

int cache_tp_clear(PyObject* self) {
  drop_entries(as_cache(self));
  return 0;
}

void cache_dealloc(PyObject* self) {
  Cache* cache = as_cache(self);
  PyObject_GC_UnTrack(self);
  unlink(cache);
  if (cache->weakrefs != nullptr) PyObject_ClearWeakRefs(self);
  drop_entries(cache);
  delete cache->entries;
  Py_TYPE(self)->tp_free(self);
}

PyObject* cache_entries(PyObject* self, PyObject*) {
  const std::vector<Entry*>& entries = *as_cache(self)->entries;
  PyObject* list = PyList_New(static_cast<Py_ssize_t>(entries.size()));
  if (list == nullptr) return nullptr;
  for (size_t i = 0; i < entries.size(); ++i) {
    PyList_SET_ITEM(list, i, Py_NewRef(reinterpret_cast<PyObject*>(entries[i])));
  }
  return list;
}

PyObject* cache_method_add(PyObject* self, PyObject* entry) {
  if (!Py_IS_TYPE(entry, &EntryType)) return PyErr_Format(PyExc_TypeError, "expected an Entry, got %R", entry);
  cache_add(as_cache(self), reinterpret_cast<Entry*>(entry));
  Py_RETURN_NONE;
}

PyObject* cache_method_remove(PyObject* self, PyObject* entry) {
  std::vector<Entry*>& entries = *as_cache(self)->entries;
  auto found = std::find(entries.begin(), entries.end(), reinterpret_cast<Entry*>(entry));
  if (found == entries.end()) return PyErr_Format(PyExc_ValueError, "%R is not in this cache", entry);
  Entry* removed = *found;
  entries.erase(found);
  Py_DECREF(removed);
  Py_RETURN_NONE;
}

PyObject* cache_method_clear(PyObject* self, PyObject*) {
  cache_clear(as_cache(self));
  Py_RETURN_NONE;
}

Py_ssize_t cache_length(PyObject* self) { return static_cast<Py_ssize_t>(as_cache(self)->entries->size()); }

PyMethodDef methods[] = {
    {"entries", cache_entries, METH_NOARGS, "The entries, most recent hit first."},
    {"add", cache_method_add, METH_O, "Puts an entry in front (what a miss does with the callback's answer)."},
    {"remove", cache_method_remove, METH_O, "Drops one entry; calls inside it finish."},
    {"clear", cache_method_clear, METH_NOARGS, "Forgets entries, the skip mark and the miss count."},
    {},
};

PyMemberDef members[] = {
    {"misses", T_PYSSIZET, offsetof(Cache, misses), READONLY, "Look-ups that found no entry."},
    {"skipped", T_BOOL, offsetof(Cache, skipped), 0, "True: calls that match no entry run as plain Python."},
    {},
};

PySequenceMethods sequence = {.sq_length = cache_length};

}  // namespace

Cache* cache_new() {
  Cache* cache = as_cache(CacheType.tp_alloc(&CacheType, 0));
  if (cache == nullptr) return nullptr;
  cache->entries = new std::vector<Entry*>;
  link(cache);
  return cache;
}

void cache_add(Cache* cache, Entry* entry) {
  cache->entries->insert(cache->entries->begin(), reinterpret_cast<Entry*>(Py_NewRef(entry)));
}

void cache_promote(Cache* cache, size_t index) {
  auto begin = cache->entries->begin();
  std::rotate(begin, begin + static_cast<std::ptrdiff_t>(index), begin + static_cast<std::ptrdiff_t>(index) + 1);
}

void cache_clear(Cache* cache) {
  cache->skipped = false;
  cache->misses = 0;
  drop_entries(cache);
}

void caches_reset() {
  // Dropping an entry can run any Python code, so the list is copied first.
  std::vector<Cache*> caches;
  for (Cache* cache = all_caches; cache != nullptr; cache = cache->next) {
    caches.push_back(reinterpret_cast<Cache*>(Py_NewRef(cache)));
  }
  for (Cache* cache : caches) {
    cache_clear(cache);
    Py_DECREF(cache);
  }
}

void cache_begin_compile(Cache* cache) {
  cache->compiling = true;
  cache->compiler = PyThread_get_thread_ident();
}

void cache_end_compile(Cache* cache) {
  cache->compiling = false;
  {
    std::lock_guard lock(compile_end->mutex);
    ++compile_end->count;
  }
  compile_end->happened.notify_all();
}

bool cache_wait_compile() {
  // The count is read with the GIL held, and an end needs the GIL: none can be missed.
  CompileEnd* end = compile_end;
  unsigned long seen = end->count;
  for (bool ended = false; !ended;) {
    Py_BEGIN_ALLOW_THREADS;
    std::unique_lock lock(end->mutex);
    ended = end->happened.wait_for(lock, std::chrono::milliseconds(100), [&] { return end->count != seen; });
    lock.unlock();
    Py_END_ALLOW_THREADS;
    if (PyErr_CheckSignals() < 0) return false;
  }
  return true;
}

void caches_after_fork() {
  compile_end = new CompileEnd;  // the old mutex may have been locked by a thread that is gone
  unsigned long self = PyThread_get_thread_ident();
  for (Cache* cache = all_caches; cache != nullptr; cache = cache->next) {
    if (cache->compiling && cache->compiler != self) cache->compiling = false;
  }
}

PyTypeObject CacheType = {
    .ob_base = PyVarObject_HEAD_INIT(nullptr, 0)
    .tp_name = "dyncomp._frame._core.Cache",
    .tp_basicsize = sizeof(Cache),
    .tp_dealloc = cache_dealloc,
    .tp_as_sequence = &sequence,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Cache()\n\nThe entries of one function under one owner, most recent hit first.",
    .tp_traverse = cache_traverse,
    .tp_clear = cache_tp_clear,
    .tp_weaklistoffset = offsetof(Cache, weakrefs),
    .tp_methods = methods,
    .tp_members = members,
    .tp_new = cache_type_new,
};

}  // namespace dyncomp
