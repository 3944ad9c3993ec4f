#include "hook/stack.h"

#include <Python.h>
#include <pthread.h>

#include <algorithm>

namespace dyncomp {
namespace {

struct Bounds {
  uintptr_t low = 0;     // first usable address
  uintptr_t margin = 0;  // what must stay free; 0: bounds unknown, nothing is checked
  bool known = false;
};

[[gnu::tls_model("initial-exec")]] thread_local Bounds bounds;

// Room for the deepest torch operator below one Python call.
constexpr uintptr_t kMargin = 256 * 1024;

[[gnu::noinline]] void find_bounds() {
  bounds.known = true;
#if defined(__linux__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* low = nullptr;
  size_t size = 0;
  if (pthread_attr_getstack(&attributes, &low, &size) == 0) {
    bounds.low = reinterpret_cast<uintptr_t>(low);
    bounds.margin = std::min<uintptr_t>(kMargin, size / 4);
  }
  pthread_attr_destroy(&attributes);
#elif defined(__APPLE__)
  size_t size = pthread_get_stacksize_np(pthread_self());
  bounds.low = reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(pthread_self())) - size;
  bounds.margin = std::min<uintptr_t>(kMargin, size / 4);
#endif
}

}  // namespace

bool stack_has_room() {
  if (!bounds.known) [[unlikely]]
    find_bounds();
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  // Unsigned: an address below the known stack (a coroutine library's own stack) is far away, so it passes.
  if (here - bounds.low >= bounds.margin) [[likely]]
    return true;
  PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack is full");
  return false;
}

}  // namespace dyncomp
