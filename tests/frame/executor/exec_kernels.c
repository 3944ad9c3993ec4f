/* The kernels that the executor's tests call. */
#include <stdint.h>
#include <time.h>

typedef void *const *Pointers;
typedef const int64_t *Ints;

void add_one(Pointers p, Ints s, int64_t begin, int64_t end) {
  const float *x = p[0];
  float *y = p[1];
  for (int64_t i = begin; i < end; i++) y[i] = x[i] + 1;
}

/* s[0]: stride of x */
void add_strided(Pointers p, Ints s, int64_t begin, int64_t end) {
  const float *x = p[0];
  float *y = p[1];
  for (int64_t i = begin; i < end; i++) y[i] = x[i * s[0]] + 1;
}

void line(Pointers p, Ints s, int64_t begin, int64_t end) {
  int64_t *y = p[0];
  for (int64_t i = begin; i < end; i++) y[i] = s[0] * i + s[1];
}

/* Each element tells the range that its call covered. */
void chunk(Pointers p, Ints s, int64_t begin, int64_t end) {
  int64_t *y = p[0];
  for (int64_t i = begin; i < end; i++) y[i] = begin * 1000000 + end;
}

/* Sets the flag p[1] if an element of x is s[0] or more. */
void raise_flag(Pointers p, Ints s, int64_t begin, int64_t end) {
  const int64_t *x = p[0];
  for (int64_t i = begin; i < end; i++)
    if (x[i] >= s[0]) *(int64_t *)p[1] = 1;
}

void fill_bytes(Pointers p, Ints s, int64_t begin, int64_t end) {
  unsigned char *y = p[0];
  for (int64_t i = begin; i < end; i++) y[i] = (unsigned char)s[0];
}

/* Waits until somebody else sets x[0], at most 10 s, and returns what it saw. */
void wait_for(Pointers p, Ints s, int64_t begin, int64_t end) {
  const volatile int64_t *x = p[0];
  struct timespec millisecond = {0, 1000000};
  for (int i = 0; i < 10000 && *x == 0; i++) nanosleep(&millisecond, 0);
  *(int64_t *)p[1] = *x;
}
