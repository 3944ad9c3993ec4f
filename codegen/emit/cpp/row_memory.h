// Memory for one row whose length the call brings: on the stack while it is short, else from the heap.
#pragma once

#include "vec_memory.h"

extern "C" void *aligned_alloc(unsigned long alignment, unsigned long size);
extern "C" void free(void *memory);

template <class T>
struct row_memory {
  static constexpr i64 on_stack = 16 * 1024 / sizeof(T);
  alignas(64) T near[on_stack];
  T *start;

  explicit inline row_memory(i64 length) : start(near) {
    // a vector may be stored to the end of a row that is no multiple of it
    if (length > on_stack - 64) start = (T *)aligned_alloc(64, ((unsigned long)(length + 64) * sizeof(T) + 63) / 64 * 64);
  }
  row_memory(const row_memory &) = delete;
  inline ~row_memory() {
    if (start != near) free(start);
  }
};
