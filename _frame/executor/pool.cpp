// Blocks are sorted into size classes, eight a doubling. A class is a stack (the block given last is the warmest); all kept
// blocks also form two queues by age, of huge and of other ones, from which blocks leave when more than the limit would be kept. One
// lock guards it all: it is held for a few pointer moves, never while memory is mapped, unmapped or touched. Before a new block is
// fetched, old huge ones go until all blocks together are about as large as those that were live at one time; other ones would go back
// to malloc, which keeps most of them.
#include "executor/pool.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>

#include <c10/util/Exception.h>
#include "executor/pool_kept.h"
#include "executor/text.h"

namespace dyncomp::executor {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHuge = std::size_t{2} << 20;  // a huge page
constexpr std::size_t kStepsLog2 = 3;                // eight classes a doubling
constexpr std::size_t kClasses = 64 << kStepsLog2;

// What blocks may take beyond the most that was live: little where that is much, and enough for small programs to take turns.
constexpr uint64_t slack(uint64_t peak) {
  constexpr uint64_t kSmall = uint64_t{32} << 20;
  return std::max(peak / 32, kSmall - std::min(kSmall, peak / 8));
}
}  // namespace

struct Block {
  void* data;
  std::size_t bytes;  // of its class
  uint32_t klass;
  Block* above;  // towards the top of the class's stack
  Block* below;
  Block* newer;  // in its queue
  Block* older;
};

namespace {

struct SizeClass {
  std::size_t bytes;
  uint32_t index;
};

SizeClass size_class(std::size_t bytes) {
  if (bytes <= kAlignment) {
    return {kAlignment, 0};
  }
  auto doubling = static_cast<std::size_t>(std::bit_width(bytes - 1));  // bytes lie in (2^(doubling-1), 2^doubling]
  std::size_t half = std::size_t{1} << (doubling - 1);
  std::size_t step = std::max(kAlignment, half >> kStepsLog2);
  std::size_t rounded = (bytes + step - 1) / step * step;
  return {rounded, static_cast<uint32_t>((doubling << kStepsLog2) + (rounded - half - 1) / step)};
}

// Huge blocks are mapped at a huge page's boundary, so that the kernel can back them with huge pages at the first touch.
void* map_huge(std::size_t bytes) {
  std::size_t span = bytes + kHuge;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    return nullptr;
  }
  auto start = reinterpret_cast<uintptr_t>(raw);
  uintptr_t aligned = (start + kHuge - 1) / kHuge * kHuge;
  if (aligned > start) {
    munmap(raw, aligned - start);
  }
  if (uintptr_t rest = start + span - (aligned + bytes)) {
    munmap(reinterpret_cast<void*>(aligned + bytes), rest);
  }
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);  // a hint: fine if the kernel does not know it
  return reinterpret_cast<void*>(aligned);
}

Block* fetch(SizeClass wanted) {
  void* data = wanted.bytes >= kHuge ? map_huge(wanted.bytes) : std::aligned_alloc(kAlignment, wanted.bytes);
  return data == nullptr ? nullptr : new Block{data, wanted.bytes, wanted.index, nullptr, nullptr, nullptr, nullptr};
}

void discard(Block* block) noexcept {
  if (block->bytes >= kHuge) {
    munmap(block->data, block->bytes);
  } else {
    std::free(block->data);
  }
  delete block;
}

uint64_t default_limit() {
  auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  return std::clamp<uint64_t>(memory / 16, uint64_t{256} << 20, uint64_t{4} << 30);
}

class Pool {
 public:
  Block* take(std::size_t bytes) {
    SizeClass wanted = size_class(bytes);
    Block* evicted = nullptr;
    {
      std::lock_guard lock(mutex_);
      used_.store(true, std::memory_order_relaxed);
      stats_.live_bytes += wanted.bytes;
      stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
      if (Block* block = tops_[wanted.index]) {
        unlink(block);
        ++stats_.hits;
        return block;
      }
      ++stats_.misses;
      // Live and kept blocks together take hardly more than what was once live: a program that needs blocks of one size now and
      // of another later takes no more memory than without a pool.
      evicted = evict_down_to(stats_.peak_bytes - stats_.live_bytes + slack(stats_.peak_bytes), true);
    }
    discard_all(evicted);
    Block* block = fetch(wanted);
    if (block == nullptr) {  // the kept blocks may be what is missing
      trim();
      block = fetch(wanted);
    }
    if (block == nullptr) {
      std::lock_guard lock(mutex_);
      stats_.live_bytes -= wanted.bytes;
    }
    return block;
  }

  Block* take_kept(std::size_t bytes) noexcept {
    SizeClass wanted = size_class(bytes);
    Block* evicted;
    {
      std::lock_guard lock(mutex_);
      if (Block* block = tops_[wanted.index]) {
        unlink(block);
        ++stats_.hits;
        stats_.live_bytes += wanted.bytes;
        stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
        return block;
      }
      evicted = evict_down_to(stats_.kept_bytes - std::min<uint64_t>(stats_.kept_bytes, wanted.bytes), true);
    }
    discard_all(evicted);
    return nullptr;
  }

  void give(Block* block) noexcept {
    Block* evicted = nullptr;
    {
      std::lock_guard lock(mutex_);
      stats_.live_bytes -= block->bytes;
      if (block->bytes > stats_.limit) {
        block->below = nullptr;
        evicted = block;
      } else {
        link(block);
        evicted = evict_down_to(stats_.limit);
      }
    }
    discard_all(evicted);
  }

  uint64_t trim() noexcept {
    Block* evicted;
    uint64_t bytes;
    {
      std::lock_guard lock(mutex_);
      bytes = stats_.kept_bytes;
      evicted = evict_down_to(0);
    }
    discard_all(evicted);
    return bytes;
  }

  void set_limit(uint64_t bytes) noexcept {
    Block* evicted;
    {
      std::lock_guard lock(mutex_);
      stats_.limit = bytes;
      evicted = evict_down_to(bytes);
    }
    discard_all(evicted);
  }

  PoolStats stats() noexcept {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  // Without the lock: an old answer does no harm.
  bool is_used() const noexcept { return used_.load(std::memory_order_relaxed); }

  std::mutex& mutex() noexcept { return mutex_; }

 private:
  void link(Block* block) noexcept {
    block->above = nullptr;
    block->below = tops_[block->klass];
    if (block->below != nullptr) {
      block->below->above = block;
    }
    tops_[block->klass] = block;
    Queue& queue = queue_of(block);
    block->newer = nullptr;
    block->older = queue.newest;
    (queue.newest != nullptr ? queue.newest->newer : queue.oldest) = block;
    queue.newest = block;
    stats_.kept_bytes += block->bytes;
  }

  void unlink(Block* block) noexcept {
    (block->above != nullptr ? block->above->below : tops_[block->klass]) = block->below;
    if (block->below != nullptr) {
      block->below->above = block->above;
    }
    Queue& queue = queue_of(block);
    (block->newer != nullptr ? block->newer->older : queue.newest) = block->older;
    (block->older != nullptr ? block->older->newer : queue.oldest) = block->newer;
    stats_.kept_bytes -= block->bytes;
  }

  // Unlinks the oldest blocks, huge ones first, until at most `bytes` are kept, or no huge one is left where only those may go; they
  // come back as a list linked by `below`.
  Block* evict_down_to(uint64_t bytes, bool only_huge = false) noexcept {
    Block* evicted = nullptr;
    while (stats_.kept_bytes > bytes) {
      Block* block = huge_.oldest != nullptr || only_huge ? huge_.oldest : others_.oldest;
      if (block == nullptr) {
        break;
      }
      unlink(block);
      block->below = evicted;
      evicted = block;
    }
    return evicted;
  }

  static void discard_all(Block* block) noexcept {
    while (block != nullptr) {
      Block* next = block->below;
      discard(block);
      block = next;
    }
  }

  struct Queue {
    Block* newest = nullptr;
    Block* oldest = nullptr;
  };

  Queue& queue_of(const Block* block) noexcept { return block->bytes >= kHuge ? huge_ : others_; }

  std::mutex mutex_;
  Block* tops_[kClasses] = {};
  Queue huge_, others_;
  std::atomic<bool> used_ = false;
  PoolStats stats_{0, 0, default_limit(), 0, 0, 0};
};

// Never destroyed: tensors may outlive every static object. Locked across fork, so that a child never inherits it taken.
Pool& pool() {
  static Pool& instance = *[] {
    pthread_atfork([] { pool().mutex().lock(); }, [] { pool().mutex().unlock(); }, [] { pool().mutex().unlock(); });
    return new Pool;
  }();
  return instance;
}

void give_from_data_ptr(void* context) { pool_give(static_cast<Block*>(context)); }

}  // namespace

Block* pool_try_take(std::size_t bytes) {
  // No tensor is that large; it also keeps the class arithmetic from wrapping round.
  return bytes <= (std::size_t{1} << 47) ? pool().take(bytes) : nullptr;
}

Block* pool_take_kept(std::size_t bytes) noexcept {
  return bytes <= (std::size_t{1} << 47) ? pool().take_kept(bytes) : nullptr;
}

Block* pool_take(std::size_t bytes) {
  Block* block = pool_try_take(bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr, "dyncomp: not enough memory: you tried to allocate ", text(bytes), " bytes.");
  return block;
}

bool pool_is_used() noexcept { return pool().is_used(); }

void pool_give(Block* block) noexcept { pool().give(block); }

void* block_data(const Block* block) noexcept { return block->data; }

c10::DataPtr own_block(Block* block) { return {block->data, block, &give_from_data_ptr, c10::Device(c10::kCPU)}; }

c10::DataPtr pool_data_ptr(std::size_t bytes) {
  return bytes == 0 ? c10::DataPtr(nullptr, c10::Device(c10::kCPU)) : own_block(pool_take(bytes));
}

PoolStats pool_stats() noexcept { return pool().stats(); }
uint64_t pool_trim() noexcept { return pool().trim(); }
void pool_set_limit(uint64_t bytes) noexcept { pool().set_limit(bytes); }

}  // namespace dyncomp::executor
