#include "hook/stack.h"

#include <Python.h>
#include <pthread.h>

#include <algorithm>

namespace dyncomp {

thread_local StackBounds stack_bounds;

namespace {

// Room for the deepest torch operator below one Python call.
constexpr uintptr_t kMargin = 256 * 1024;

void set_bounds(uintptr_t low, size_t size) {
  stack_bounds.low = low;
  stack_bounds.margin = std::min<uintptr_t>(kMargin, size / 4);
}

void find_bounds() {
  set_bounds(0, 0);  // unknown: nothing is checked
#if defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* low = nullptr;
  size_t size = 0;
  if (pthread_attr_getstack(&attributes, &low, &size) == 0) set_bounds(reinterpret_cast<uintptr_t>(low), size);
  pthread_attr_destroy(&attributes);
#elif defined(__APPLE__)
  size_t size = pthread_get_stacksize_np(pthread_self());
  set_bounds(reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(pthread_self())) - size, size);
#endif
}

}  // namespace

bool stack_check_slowly(uintptr_t here) {
  if (stack_bounds.margin == UINTPTR_MAX) {
    find_bounds();
    if (here - stack_bounds.low >= stack_bounds.margin) return true;
  }
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is full");
  return false;
}

}  // namespace dyncomp
