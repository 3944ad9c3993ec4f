// The pool's kept blocks, for who would otherwise take fresh memory beside them.
#pragma once

#include <cstddef>

#include "executor/pool.h"

namespace dyncomp::executor {

// A kept block for so many bytes, taken as by `pool_take`. Where there is none, kept blocks of as many bytes go back to the
// system, the oldest first, so that fresh memory in their place takes no more; then nullptr.
Block* pool_take_kept(std::size_t bytes) noexcept;

// True once a plan took memory from the pool.
bool pool_is_used() noexcept;

}  // namespace dyncomp::executor
