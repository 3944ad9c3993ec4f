// Room left on the C stack. With a frame hook installed every Python call uses C stack, so a deep recursion that
// `sys.setrecursionlimit` allows could run off its end; it must become a RecursionError instead.
#pragma once
#include <cstdint>

namespace dyncomp {

// Sets RecursionError and returns false when the calling thread is about to run out of C stack.
bool stack_has_room();

}  // namespace dyncomp
