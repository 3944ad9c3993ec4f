// The entries of one function (or one code object) under one owner, most recent hit first. Python name: `_core.Cache`.
#pragma once
#include <Python.h>

#include <vector>

#include "cache/entry.h"

namespace dyncomp {

struct Cache {
  PyObject_HEAD
  std::vector<Entry*>* entries;  // held
  Py_ssize_t misses;             // look-ups that found no entry
  bool skipped;                  // no more compiling: a call that matches no entry runs as plain Python
  bool compiling;
  unsigned long compiler;  // thread identity, while compiling
  PyObject* weakrefs;
  Cache* previous;  // all live caches, for `reset`
  Cache* next;
};

extern PyTypeObject CacheType;

// Creates an empty cache: a new reference.
Cache* cache_new();
// Puts an entry in front.
void cache_add(Cache* cache, Entry* entry);
// Moves the entry at `index` to the front.
void cache_promote(Cache* cache, size_t index);
// Forgets entries, the skip mark and the miss count. Calls in flight keep their entry.
void cache_clear(Cache* cache);
// Clears every live cache.
void caches_reset();

// At most one thread compiles for a cache. `begin` requires that nobody does.
void cache_begin_compile(Cache* cache);
void cache_end_compile(Cache* cache);
// Waits, without the GIL, until some compile in the process ended; false with an exception if a signal handler raised.
bool cache_wait_compile();
// In a forked child: the threads that were compiling are gone.
void caches_after_fork();

}  // namespace dyncomp
