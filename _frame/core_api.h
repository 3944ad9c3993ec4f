// What `core.pyx` sees of the native runtime.
#pragma once
#include <Python.h>

#include "cache/cache.h"
#include "cache/cell.h"
#include "cache/entry.h"
#include "dispatch/dispatcher.h"
#include "dispatch/serve.h"
#include "guards/check.h"
#include "guards/state.h"
#include "guards/tensor.h"
#include "guards/tree.h"
#include "hook/evaluator.h"
#include "hook/region.h"
#include "hook/thread.h"

namespace dyncomp {

// Readies types and self-tests. -1 with an exception.
inline int core_init() {
  PyTypeObject* types[] = {&GuardTreeType, &EntryType, &CacheType, &RegionType, &WithoutHookType, &DispatcherType};
  for (PyTypeObject* type : types) {
    if (PyType_Ready(type) < 0) return -1;
  }
  return check_init() && serve_init() && cells_init() && tensor_init() ? 0 : -1;
}

}  // namespace dyncomp
