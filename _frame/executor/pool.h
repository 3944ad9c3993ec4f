// A bounded cache of CPU memory blocks: fresh large memory costs more than the arithmetic on it (page faults), so
// blocks are kept and handed out again. Any thread may take and give; least recently given blocks go first.
#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>

namespace dyncomp::executor {

struct Block;  // owned by whoever took it, until it is given back

struct PoolStats {
  uint64_t live_bytes;  // in use now
  uint64_t kept_bytes;  // waiting to be reused
  uint64_t limit;       // most bytes kept
  uint64_t hits;        // blocks reused
  uint64_t misses;      // blocks fetched from the system
  uint64_t peak_bytes;  // most bytes in use at one time
};

// A block of at least `bytes` bytes (> 0), aligned to 64 bytes, to 2 MiB from 2 MiB on. Throws c10::Error if there is no memory.
Block* pool_take(std::size_t bytes);
// The same; nullptr if there is no memory.
Block* pool_try_take(std::size_t bytes);
void pool_give(Block* block) noexcept;
void* block_data(const Block* block) noexcept;

// A DataPtr that owns a block and gives it back when it dies; null for zero bytes.
c10::DataPtr pool_data_ptr(std::size_t bytes);
// A DataPtr that takes over a block.
c10::DataPtr own_block(Block* block);

PoolStats pool_stats() noexcept;
// Returns every kept block to the system; the number of bytes returned.
uint64_t pool_trim() noexcept;
void pool_set_limit(uint64_t bytes) noexcept;

}  // namespace dyncomp::executor
