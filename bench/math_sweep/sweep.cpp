// Every one of the 2^32 floats through one function of the math header, against libm in double or long double.
//
//   sweep FUNCTION THREADS EVERY   ->   FUNCTION worst-ulp at-bits got-bits special-mismatches at-bits
//
// EVERY: 1 for all floats, n for one block of 65,536 in n.
//
// The distance is in units of the float spacing at the exact result (2^-149 below the normal range). A result that is
// not finite, or should not be, counts as a mismatch unless both are the same infinity, or both nan.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#define KERNEL(name) extern "C" void sweep_##name(const float *, float *, long);
#include "functions.inc"
#undef KERNEL

using Kernel = void (*)(const float *, float *, long);
using Exact = double (*)(float);

// Inverse by Newton steps in long double on the independent erfl and erfcl.
static double exact_erfinv(float y) {
  long double a = std::fabs((long double)y);
  if (!(a < 1)) return a == 1 ? std::copysign(INFINITY, y) : NAN;
  if (a == 0) return y;
  long double w = -std::log1p(-a * a);  // Giles 2010 names w the natural variable; any start near enough does
  long double x = w < 5 ? a * 0.886226925452758L * (1 + 0.13L * w) : std::sqrt(w - 0.5L * (std::log(w) + 1.1447298858494L));
  for (int i = 0; i < 40; i++) {
    long double f = a < 0.5L ? std::erf(x) - a : (1 - a) - std::erfc(x);
    long double step = f / (1.128379167095512573896L * std::exp(-x * x));
    step /= 1 + x * step;
    x -= step;
    if (std::fabs(step) <= 1e-18L * x) break;
  }
  return (double)std::copysign(x, (long double)y);
}
// Abramowitz and Stegun 6.3.7 (reflection), 6.3.5 (recurrence to 30), 6.3.18 (asymptotic series), in long double.
static double exact_digamma(float value) {
  long double x = value, r = 0;
  if (x == 0) return std::copysign(INFINITY, -value);
  if (std::isinf(x)) return x > 0 ? INFINITY : NAN;
  if (x < 0) {
    long double f = x - std::floor(x + 0.5L);
    if (f == 0) return NAN;
    r = -3.14159265358979323846264L / std::tan(3.14159265358979323846264L * f);
    x = 1 - x;
  }
  for (; x < 30; x += 1) r -= 1 / x;
  long double z = 1 / (x * x);
  long double s = z * (1.L / 12 - z * (1.L / 120 - z * (1.L / 252 - z * (1.L / 240 - z * (1.L / 132)))));
  return (double)(r + std::log(x) - 0.5L / x - s);
}
static double exact_lgamma(float x) {
  int sign;
  return (double)lgammal_r(x, &sign);
}

struct Function {
  const char *name;
  Kernel kernel;
  Exact exact;
};
#define LIBM(name) {#name, sweep_##name, [](float x) -> double { return std::name((double)x); }}
static const Function FUNCTIONS[] = {
    LIBM(exp), LIBM(exp2), LIBM(expm1), LIBM(tanh), LIBM(log), LIBM(log2), LIBM(log10), LIBM(log1p), LIBM(sin), LIBM(cos),
    LIBM(tan), LIBM(atan), LIBM(asin), LIBM(acos), LIBM(sinh), LIBM(cosh), LIBM(asinh), LIBM(acosh), LIBM(atanh), LIBM(erf),
    LIBM(erfc), LIBM(sqrt),
    {"sigmoid", sweep_sigmoid, [](float x) -> double { return 1 / (1 + std::exp(-(double)x)); }},
    {"rsqrt", sweep_rsqrt, [](float x) -> double { return 1 / std::sqrt((double)x); }},
    {"reciprocal", sweep_reciprocal, [](float x) -> double { return 1 / (double)x; }},
    {"erfinv", sweep_erfinv, exact_erfinv}, {"lgamma", sweep_lgamma, exact_lgamma}, {"digamma", sweep_digamma, exact_digamma},
};

static double spacing(double exact) {
  int exponent;
  std::frexp(exact, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

int main(int argc, char **argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: sweep FUNCTION THREADS EVERY\n"), 2;
  const Function *f = nullptr;
  for (const Function &g : FUNCTIONS)
    if (std::string(argv[1]) == g.name) f = &g;
  if (!f) return std::fprintf(stderr, "no such function: %s\n", argv[1]), 2;

  constexpr uint64_t BLOCK = 1 << 16;
  const uint64_t step = BLOCK * std::max(1, std::atoi(argv[3]));
  std::atomic<uint64_t> next{0};
  std::mutex lock;
  double worst = -1;
  uint32_t worst_at = 0, worst_got = 0, special_at = 0;
  uint64_t special = 0;
  auto work = [&] {
    std::vector<float> x(BLOCK), y(BLOCK);
    double mine = -1;
    uint32_t mine_at = 0, mine_got = 0, bad_at = 0;
    uint64_t bad = 0;
    for (uint64_t start; (start = next.fetch_add(step)) < (uint64_t)1 << 32;) {
      for (uint64_t i = 0; i < BLOCK; i++) {
        uint32_t u = (uint32_t)(start + i);
        std::memcpy(&x[i], &u, 4);
      }
      f->kernel(x.data(), y.data(), BLOCK);
      for (uint64_t i = 0; i < BLOCK; i++) {
        double exact = f->exact(x[i]);
        float want = (float)exact, got = y[i];
        if (!std::isfinite(want) || !std::isfinite(got)) {
          if (!(got == want || (got != got && exact != exact))) bad++, bad_at = (uint32_t)(start + i);
          continue;
        }
        double distance = std::fabs((double)got - exact) / spacing(exact);
        if (distance > mine) {
          mine = distance;
          mine_at = (uint32_t)(start + i);
          std::memcpy(&mine_got, &got, 4);
        }
      }
    }
    std::lock_guard<std::mutex> held(lock);
    if (mine > worst) worst = mine, worst_at = mine_at, worst_got = mine_got;
    special += bad;
    if (bad) special_at = bad_at;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < std::atoi(argv[2]); t++) threads.emplace_back(work);
  for (auto &t : threads) t.join();
  std::printf("%s %.4f %08x %08x %llu %08x\n", f->name, worst, worst_at, worst_got, (unsigned long long)special, special_at);
  return worst <= 2 && special == 0 ? 0 : 1;
}
