// One OpenMP runtime only: torch's. Its symbols are declared here and found at load time among torch's own libraries, so
// whichever runtime this torch was built with (libgomp under any file name, or one that speaks its interface) is the one
// used, and `torch.set_num_threads` holds for our kernels. `#pragma omp` would link the compiler's runtime beside it.
#include "executor/parallel.h"

#include <algorithm>

#include <ATen/Parallel.h>

#if AT_PARALLEL_OPENMP
extern "C" {
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
}
#endif

namespace dyncomp::executor {

#if AT_PARALLEL_OPENMP
namespace {

struct Region {
  KernelFn kernel;
  void* const* pointers;
  const int64_t* ints;
  int64_t units;
  int64_t grain;
};

// A kernel is pure C on raw memory: it never reads torch's thread-local state, so none is set up here.
void run_chunk(void* data) {
  const auto& region = *static_cast<const Region*>(data);
  int64_t wanted = at::divup(region.units, region.grain);
  int64_t threads = std::min<int64_t>(omp_get_num_threads(), wanted);
  int64_t chunk = at::divup(region.units, threads);
  int64_t begin = omp_get_thread_num() * chunk;
  if (begin < region.units) {
    region.kernel(region.pointers, region.ints, begin, std::min(begin + chunk, region.units));
  }
}

}  // namespace
#endif

void parallel_kernel(KernelFn kernel, void* const* pointers, const int64_t* ints, int64_t units, int64_t grain) {
  if (units <= 0) {
    return;
  }
  grain = std::max<int64_t>(grain, 1);
  if (units <= grain || at::in_parallel_region() || at::get_num_threads() == 1) {
    kernel(pointers, ints, 0, units);
    return;
  }
#if AT_PARALLEL_OPENMP
  Region region{kernel, pointers, ints, units, grain};
  // 0 threads: as many as torch set. Asking for fewer makes libgomp rebuild its team at the next full region.
  GOMP_parallel(&run_chunk, &region, 0, 0);
#else
  at::parallel_for(0, units, grain, [&](int64_t begin, int64_t end) { kernel(pointers, ints, begin, end); });
#endif
}

}  // namespace dyncomp::executor
