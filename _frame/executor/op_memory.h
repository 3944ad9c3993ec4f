// The memory that operations called by a plan allocate: pooled, as the plan's own is.
#pragma once

namespace dyncomp::executor {

// Puts our allocator in front of torch's for the CPU; once, at import.
void install_op_memory();

// While one lives, large memory that this thread asks torch for comes from the pool.
class PooledResults {
 public:
  PooledResults() noexcept;
  ~PooledResults();
  PooledResults(const PooledResults&) = delete;
  PooledResults& operator=(const PooledResults&) = delete;

 private:
  bool before_;
};

}  // namespace dyncomp::executor
