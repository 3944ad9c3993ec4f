// Room left on the C stack. With a frame hook installed every Python call uses C stack, so a deep recursion that
// `sys.setrecursionlimit` allows could run off its end; it must become a RecursionError instead.
#pragma once
#include <cstdint>

namespace dyncomp {

struct StackBounds {
  uintptr_t low = 0;                 // first usable address
  uintptr_t margin = UINTPTR_MAX;    // what must stay free; the first check of a thread goes to the slow path
};
[[gnu::tls_model("initial-exec")]] extern thread_local StackBounds stack_bounds;

// Finds the bounds in a new thread, or sets RecursionError and returns false.
bool stack_check_slowly(uintptr_t here);

// Sets RecursionError and returns false when the calling thread is about to run out of C stack.
inline bool stack_has_room() {
  uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  // Unsigned: an address below the known stack (a coroutine library's own stack) is far away, so it passes.
  return here - stack_bounds.low >= stack_bounds.margin || stack_check_slowly(here);
}

}  // namespace dyncomp
