// ATen takes the memory of its results from torch's allocator for the CPU, which is malloc. A plan gets the same large results
// in every call, and malloc may return them to the system in between: page faults then cost as much as the operation. So the
// allocator is wrapped. Inside `PooledResults` large requests become blocks of the pool; all others go on to the one before.
// But large requests from elsewhere (an optimiser's temporaries, say) do not come on top of what the pool keeps between calls: once
// plans have used the pool they come from there too, up to what malloc would map afresh: that takes a kept block, or the place of some.
//
// `raw_allocate`, by which oneDNN gets its scratch memory, wants the context of a DataPtr to be the address itself, and frees
// by that address alone, at any time. So blocks are found by address.
#include "executor/op_memory.h"

#include <pthread.h>

#include <mutex>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>

#include "executor/pool_kept.h"

namespace dyncomp::executor {

namespace {

constexpr std::size_t kLeast = std::size_t{32} << 10;   // below, malloc keeps what it is given back
constexpr std::size_t kShared = std::size_t{512} << 10;  // from here on, two that keep memory cost more than one
constexpr std::size_t kMapped = std::size_t{32} << 20;  // from here on, it never does

thread_local bool pooled = false;

// The blocks that are out, by address. Locked across fork, so that a child never inherits it taken.
struct Blocks {
  std::mutex mutex;
  std::unordered_map<void*, Block*> by_address;
};

Blocks& blocks() {
  static Blocks& instance = *[] {
    pthread_atfork([] { blocks().mutex.lock(); }, [] { blocks().mutex.unlock(); }, [] { blocks().mutex.unlock(); });
    return new Blocks;  // never destroyed: tensors may outlive every static object
  }();
  return instance;
}

// The block at an address, which is no longer out; nullptr if the address is none of ours.
Block* taken_back(void* data) {
  std::lock_guard lock(blocks().mutex);
  auto found = blocks().by_address.find(data);
  if (found == blocks().by_address.end()) {
    return nullptr;
  }
  Block* block = found->second;
  blocks().by_address.erase(found);
  return block;
}

class OpMemory final : public c10::Allocator {
 public:
  explicit OpMemory(c10::Allocator* before) : before_(before) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    Block* block = nullptr;
    if (pooled && bytes >= kLeast) {
      block = pool_try_take(bytes);
    } else if (bytes >= kMapped) {
      block = pool_take_kept(bytes);
    } else if (bytes >= kShared && pool_is_used()) {
      block = pool_try_take(bytes);
    }
    if (block == nullptr) {
      return before_->allocate(bytes);  // without memory it says so in eager's words
    }
    void* data = block_data(block);
    {
      std::lock_guard lock(blocks().mutex);
      blocks().by_address.emplace(data, block);
    }
    return {data, data, &give_back, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

 private:
  static void give_back(void* data) {
    if (data != nullptr) {
      pool_give(taken_back(data));
    }
  }

  static void release(void* data);

  c10::Allocator* before_;
};

c10::Allocator* underneath = nullptr;

void OpMemory::release(void* data) {
  if (Block* block = data == nullptr ? nullptr : taken_back(data)) {
    pool_give(block);
  } else {
    underneath->raw_deleter()(data);
  }
}

}  // namespace

void install_op_memory() {
  if (underneath == nullptr && c10::GetCPUAllocator()->raw_deleter() != nullptr) {
    underneath = c10::GetCPUAllocator();
    c10::SetCPUAllocator(new OpMemory(underneath));
  }
}

PooledResults::PooledResults() noexcept : before_(pooled) { pooled = true; }
PooledResults::~PooledResults() { pooled = before_; }

}  // namespace dyncomp::executor
