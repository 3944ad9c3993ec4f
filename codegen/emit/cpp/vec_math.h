// Math on vectors of any width: within 2 ulp of the exact result over the whole float range, special values as in C.
//
// Float functions either work in float, or (where that is simpler to get right and the function is rare) in double on
// half vectors; double functions and rare slow paths call libm a lane at a time. Polynomials are near-minimax fits made
// for this file by iteratively reweighted least squares; the reductions around them are the classical ones, named
// where they stand. Every function is named v_<operation of the loop IR> and takes scalars too.
#pragma once
#include "vec_tables.h"

extern "C" {
double exp(double), exp2(double), expm1(double), log(double), log1p(double), log2(double), log10(double), sin(double),
    cos(double), tan(double), asin(double), acos(double), atan(double), atan2(double, double), sinh(double), cosh(double),
    tanh(double), asinh(double), acosh(double), atanh(double), erf(double), erfc(double), lgamma_r(double, int *),
    pow(double, double), fmod(double, double), hypot(double, double), nextafter(double, double), floor(double),
    fma(double, double, double), sqrt(double);
float sinf(float), cosf(float), fmodf(float, float), nextafterf(float, float), fmaf(float, float, float), sqrtf(float);
}

// ---- building blocks ------------------------------------------------------------------------------------------------

// f on each lane.
template <class V, class Fn> AI V each(V x, Fn f) {
  if constexpr (lanes<V> == 1) return (V)f(x);
  else {
    elem<V> a[lanes<V>];
    __builtin_memcpy(a, &x, sizeof(V));
    for (int l = 0; l < lanes<V>; l++) a[l] = (elem<V>)f(a[l]);
    __builtin_memcpy(&x, a, sizeof(V));
    return x;
  }
}
template <class V, class Fn> AI V each(V x, V y, Fn f) {
  if constexpr (lanes<V> == 1) return (V)f(x, y);
  else {
    elem<V> a[lanes<V>], b[lanes<V>];
    __builtin_memcpy(a, &x, sizeof(V));
    __builtin_memcpy(b, &y, sizeof(V));
    for (int l = 0; l < lanes<V>; l++) a[l] = (elem<V>)f(a[l], b[l]);
    __builtin_memcpy(&x, a, sizeof(V));
    return x;
  }
}
// Float vectors by way of double ones: f gets vectors of double, in halves where a whole one would be too wide.
template <class F> using dbl = vec<double, lanes<F>>;
template <class F, class Fn> AI F in_double(F x, Fn f) {
  if constexpr (lanes<F> == 1 || sizeof(F) * 2 <= VECTOR_BYTES) return convert<F>(f(convert<dbl<F>>(x)));
  else {
    typedef vec<float, lanes<F> / 2> H;
    H h[2];
    __builtin_memcpy(h, &x, sizeof(F));
    h[0] = convert<H>(f(convert<dbl<H>>(h[0])));
    h[1] = convert<H>(f(convert<dbl<H>>(h[1])));
    __builtin_memcpy(&x, h, sizeof(F));
    return x;
  }
}
template <class F, class Fn> AI F in_double(F x, F y, Fn f) {
  if constexpr (lanes<F> == 1 || sizeof(F) * 2 <= VECTOR_BYTES) return convert<F>(f(convert<dbl<F>>(x), convert<dbl<F>>(y)));
  else {
    typedef vec<float, lanes<F> / 2> H;
    H h[2], g[2];
    __builtin_memcpy(h, &x, sizeof(F));
    __builtin_memcpy(g, &y, sizeof(F));
    h[0] = convert<H>(f(convert<dbl<H>>(h[0]), convert<dbl<H>>(g[0])));
    h[1] = convert<H>(f(convert<dbl<H>>(h[1]), convert<dbl<H>>(g[1])));
    __builtin_memcpy(&x, h, sizeof(F));
    return x;
  }
}
#define IN_DOUBLE [](auto d) __attribute__((always_inline))
#define IN_DOUBLE2 [](auto d, auto e) __attribute__((always_inline))
template <class V> AI mask<V> v_signbit(V x) { return as_mask<mask<V>>(sign_bit(x) != uint_<V>{}); }
template <class V> AI mask<V> v_isnan(V x) { return as_mask<mask<V>>(x != x); }
template <class V> AI mask<V> v_isinf(V x) { return as_mask<mask<V>>(v_abs(x) == cst<V>(__builtin_inf())); }
template <class V> AI V inf_() { return cst<V>(__builtin_inf()); }
template <class V> AI V nan_() { return cst<V>(__builtin_nan("")); }

template <class V> AI V v_sqrt(V x) {
  typedef elem<V> T;
  if constexpr (lanes<V> == 1 && sizeof(T) == 4) return __builtin_sqrtf(x);
  else if constexpr (lanes<V> == 1) return __builtin_sqrt(x);
#if defined(__AVX512F__) && !defined(__clang__)
  else if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return __builtin_ia32_sqrtps512_mask(x, V{}, -1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_sqrtpd512_mask(x, V{}, -1, 4);
#endif
#if defined(__AVX__) && !defined(__clang__)
  else if constexpr (sizeof(V) == 32 && sizeof(T) == 4) return __builtin_ia32_sqrtps256(x);
  else if constexpr (sizeof(V) == 32) return __builtin_ia32_sqrtpd256(x);
#endif
#if __has_builtin(__builtin_elementwise_sqrt)  // clang from 17 on
  else return __builtin_elementwise_sqrt(x);
#else
  else return each(x, [](elem<V> a) { return sizeof(a) == 4 ? __builtin_sqrtf(a) : __builtin_sqrt(a); });
#endif
}
template <class V> AI V v_rsqrt(V x) { return cst<V>(1) / v_sqrt(x); }
template <class V> AI V v_reciprocal(V x) { return cst<V>(1) / x; }

// ---- rounding -------------------------------------------------------------------------------------------------------

// Half to even: adding 2^(mantissa bits) leaves no room for a fraction. Larger numbers are whole already.
template <class V> AI V v_round(V x) {
  const V big = cst<V>(is_f32<V> ? 0x1p23 : 0x1p52);
  V a = v_abs(x);
  return sel(a < big, v_copysign((a + big) - big, x), x);
}
template <class V> AI V v_trunc(V x) {
  V r = v_round(x);
  return v_copysign(r - sel(v_abs(r) > v_abs(x), v_copysign(cst<V>(1), x), V{}), x);
}
template <class V> AI V v_floor(V x) {
  V r = v_round(x);
  return v_copysign(sel(r > x, r - cst<V>(1), r), sel(r == V{}, x, r - cst<V>(0)));
}
template <class V> AI V v_ceil(V x) {
  V r = v_round(x);
  return v_copysign(sel(r < x, r + cst<V>(1), r), x);
}

// ---- exponentials ---------------------------------------------------------------------------------------------------

// Nearest whole number to x * c, as a float (the sum with 1.5 * 2^23 keeps it in the low bits) and as an integer.
template <class F> AI F nearest(F x, double c, sint<F> &n) {
  typedef sint<F> I;
  const F magic = cst<F>(is_f32<F> ? 0x1.8p23 : 0x1.8p52);
  F s = fma_(x, cst<F>(c), magic);
  n = bits<I>(s) - bits<I>(magic);
  return s - magic;
}
// p * 2^n, n = k as an integer, down to the smallest subnormal: in two steps where the machine has no such operation.
template <class F> AI F scale_by(F p, F k, sint<F> n) {
  typedef sint<F> I;
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(F) == 64 && is_f32<F>) return __builtin_ia32_scalefps512_mask(p, k, p, -1, 4);
  else if constexpr (sizeof(F) == 64) return __builtin_ia32_scalefpd512_mask(p, k, p, -1, 4);
#endif
  I h = n >> 1, g = n - h;
  if constexpr (is_f32<F>) return p * bits<F>((I)((h + 127) << 23)) * bits<F>((I)((g + 127) << 23));
  else return p * bits<F>((I)((h + 1023) << 52)) * bits<F>((I)((g + 1023) << 52));
}
template <class F> AI F clamp_(F x, double lo, double hi) {  // nan stays
  return machine_max(cst<F>(lo), machine_min(cst<F>(hi), x));
}

// Cody and Waite: x = n ln2 + r; ln2 in two parts, the first short enough for n * part to be exact without fma too.
template <class F> AI F exp_reduced(F x, F &k, sint<F> &n) {
  k = nearest(x, 1.44269504, n);
  F r = fma_(k, cst<F>(-0.693145752f), x);
  r = fma_(k, cst<F>(-1.42860677e-6f), r);
  return poly(r, 1.f, 1.f, 0.49999994f, 0.166665211f, 0.0416682884f, 0.00836870354f, 0.00138189388f);
}
template <class F> AI F exp_f32(F x) {
  sint<F> n;
  F k, p = exp_reduced(clamp_(x, -104, 89), k, n);
  return scale_by(p, k, n);
}
// |x| <= 87: the exponent cannot leave its range, so n is added to it.
template <class F> AI F exp_inside(F x) {
  typedef sint<F> I;
  I n;
  F k, p = exp_reduced(x, k, n);
  return bits<F>((I)(bits<I>(p) + (n << 23)));
}
// The same in double, good to 1e-14: the base of float functions that would cancel otherwise.
template <class D> AI D exp_mid(D x) {
  sint<D> n;
  x = clamp_(x, -746, 710);
  D k = nearest(x, 1.4426950408889634, n);
  D r = fma_(k, cst<D>(-0.6931471803691238), x);
  r = fma_(k, cst<D>(-1.9082149292705877e-10), r);
  D p = poly(r, 0.9999999999999999, 1.000000000000002, 0.4999999999999634, 0.16666666666657423, 0.041666666669994655,
             0.008333333343921497, 0.0013888887975276973, 0.00019841237686004176, 2.4802541683553634e-05,
             2.75930256976964e-06, 2.7244123444754013e-07, 1.1770006315588428e-08);
  return scale_by(p, k, n);
}
template <class V> AI V v_exp(V x) {
  if constexpr (is_f32<V>) return exp_f32(x);
  else return each(x, [](double a) { return exp(a); });
}
template <class V> AI V v_exp2(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return exp2(a); });
  else {
    sint<V> n;
    x = clamp_(x, -151, 129);
    V k = nearest(x, 1, n), r = x - k;
    return scale_by(poly(r, 1.f, 0.693147182f, 0.240226477f, 0.0555035956f, 0.0096185049f, 0.0013391024f, 0.000153271729f), k, n);
  }
}
// e^x - 1 = 2^n (e^r - 1) + (2^n - 1).
template <class V> AI V v_expm1(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return expm1(a); });
  else {
    sint<V> n;
    V a = clamp_(x, -30, 89);
    V k = nearest(a, 1.44269504, n);
    V r = fma_(k, cst<V>(-0.693145752f), a);
    r = fma_(k, cst<V>(-1.42860677e-6f), r);
    V q = poly(r, 0.5f, 0.166666672f, 0.0416665338f, 0.00833326671f, 0.00139284367f, 0.000198886017f);
    V em1 = fma_(r * r, q, r);
    // 2^(n-1), since 2^128 is no float; doubled at the end.
    V half = bits<V>((sint<V>)((n + 126) << 23));
    V big = fma_(half, em1, half - cst<V>(0.5f));
    big = big + big;
    return sel(k == V{}, sel(v_abs(x) < cst<V>(0x1p-40f), x, em1), big);
  }
}
template <class V> AI V v_sigmoid(V x) {
  if constexpr (!is_f32<V>) return cst<V>(1) / (cst<V>(1) + v_exp(-x));
  else if constexpr (!HAS_FMA) return in_double(x, IN_DOUBLE { return cst<decltype(d)>(1) / (cst<decltype(d)>(1) + exp_mid(-d)); });
  else {  // on -|x|, so that neither side overflows or loses its small values
    V one = cst<V>(1), e = v_exp(-v_abs(x)), top = sel(x < V{}, e, one);
    V t = one + e, low = e - (t - one);
    V r = one / t;
    // one Newton step takes back the rounding of the sum and of the quotient
    V d = fma_(-r, t, one) - r * low;
    return fma_(top, r, top * (r * d));
  }
}
template <class V> AI V v_tanh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return tanh(a); });
  else if constexpr (HAS_TABLES) return by_table(x, 12.0f, TANH);
  else {
    V a = v_abs(x), s = x * x, t = machine_min(cst<V>(10), a);
    V e = exp_inside(t + t);
    V big = cst<V>(1) - cst<V>(2) / (e + cst<V>(1));
    V p = poly(s, -0.333332807f, 0.133314088f, -0.053737063f, 0.0206309035f, -0.00569633953f);
    V small = fma_(p * s, a, a);
    V r = sel(a > cst<V>(0.625f), big, small);
    return sel(x != x, x, v_copysign(r, x));
  }
}

// ---- logarithms -----------------------------------------------------------------------------------------------------

// x = 2^e m with m in [sqrt(1/2), sqrt(2)); subnormals are scaled first.
template <class F> AI F split_exponent(F x, F &e) {
  typedef sint<F> I;
  mask<F> tiny = as_mask<mask<F>>(x < cst<F>(is_f32<F> ? 0x1p-126 : 0x1p-1022));
  x = sel(tiny, x * cst<F>(is_f32<F> ? 0x1p23 : 0x1p52), x);
  I u = bits<I>(x);
  if constexpr (is_f32<F>) {
    I k = (u - 0x3f3504f3) >> 23;
    e = convert<F>(k) - sel(tiny, cst<F>(23), F{});
    return bits<F>((I)(u - (k << 23)));
  } else {
    I k = (u - 0x3fe6a09e667f3bcd) >> 52;
    e = convert<F>(k) - sel(tiny, cst<F>(52), F{});
    return bits<F>((I)(u - (k << 52)));
  }
}
template <class F> AI F log_special(F x, F r) {  // zero, negative, inf, nan
  r = sel(x == inf_<F>(), x, r);
  r = sel(x == F{}, -inf_<F>(), r);
  return sel(x >= F{}, r, nan_<F>());
}
// log(u + d) for a d far below u: log(1+f) = f - f^2/2 + f^3 P(f).
template <class F> AI F log_f32(F u, F d) {
  F e;
  F m = split_exponent(u, e);
  F f = m - cst<F>(1);
  F p = poly(f, 0.333333135f, -0.250000119f, 0.20002088f, -0.166678637f, 0.142197385f, -0.12407656f, 0.118903905f,
             -0.116664484f, 0.0672939122f);
  F s = f * f;
  F low = fma_(e, cst<F>(-2.12194440e-4f), d);
  low = fma_(s * f, p, low);
  low = fma_(s, cst<F>(-0.5f), low);
  // ln2 = 0.693359375 - 2.12194440e-4, the first part exact in 12 bits
  return fma_(e, cst<F>(0.693359375f), f + low);
}
// log2-free double version, good to 1e-14 relative (2e-16 absolute near 1): 2 atanh((m-1)/(m+1)).
template <class D> AI D log_mid(D x) {
  D e;
  D m = split_exponent(x, e);
  D t = (m - cst<D>(1)) / (m + cst<D>(1));
  D p = poly(t * t, 2.000000000000001, 0.6666666666656839, 0.400000000588221, 0.2857141610856136, 0.22223444613932739,
             0.18121229197544392, 0.16849549474121153);
  return log_special(x, fma_(e, cst<D>(0.6931471805599453), t * p));
}
template <class V> AI V v_log(V x) {
  if constexpr (is_f32<V>) return log_special(x, log_f32(x, V{}));
  else return each(x, [](double a) { return log(a); });
}
template <class V> AI V v_log2(V x) {
  if constexpr (is_f32<V>) return in_double(x, IN_DOUBLE { return log_mid(d) * cst<decltype(d)>(1.4426950408889634); });
  else return each(x, [](double a) { return log2(a); });
}
template <class V> AI V v_log10(V x) {
  if constexpr (is_f32<V>) return in_double(x, IN_DOUBLE { return log_mid(d) * cst<decltype(d)>(0.4342944819032518); });
  else return each(x, [](double a) { return log10(a); });
}
// u = 1 + x rounded, the rounding error goes back in to first order (Kahan).
template <class V> AI V v_log1p(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return log1p(a); });
  else {
    V u = cst<V>(1) + x;
    V d = sel(x < cst<V>(1), x - (u - cst<V>(1)), cst<V>(1) - (u - x));
    V r = log_f32(u, d / u);
    r = sel(v_abs(x) < cst<V>(0x1p-24f), x, r);
    r = sel(x == inf_<V>(), x, r);
    r = sel(x == cst<V>(-1), -inf_<V>(), r);
    return sel(x >= cst<V>(-1), r, nan_<V>());
  }
}

// ---- circular functions ---------------------------------------------------------------------------------------------

// f on the lanes where |x| > limit (or x is nan), r elsewhere.
template <class F, class Fn> COLD F large_arguments(F x, F r, float limit, Fn f) {
  float a[lanes<F>], b[lanes<F>];
  __builtin_memcpy(a, &x, sizeof(F));
  __builtin_memcpy(b, &r, sizeof(F));
  for (int l = 0; l < lanes<F>; l++)
    if (!(__builtin_fabsf(a[l]) <= limit)) b[l] = f(a[l]);
  __builtin_memcpy(&r, b, sizeof(F));
  return r;
}
// sin (first = 0) or cos (first = 1) of 0 <= x <= 65536 with the sign bits in `sign` flipped: pi/2 in three parts (Cody and
// Waite), then the quadrant's polynomial.
template <class F> AI F circular(F x, int first, uint_<F> sign) {
  typedef sint<F> I;
  I q;
  F r, k = nearest(x, 0.636619772, q);
  if constexpr (HAS_FMA) {
    r = fma_(k, cst<F>(-1.57079637f), x);
    r = fma_(k, cst<F>(4.37113883e-8f), r);
    r = fma_(k, cst<F>(1.71512e-15f), r);
  } else {  // n * first part is exact in double
    r = in_double(x, k, IN_DOUBLE2 {
      typedef decltype(d) D;
      return (d - e * cst<D>(1.5707963267341256)) - e * cst<D>(6.077100506506192e-11);
    });
  }
  q = q + first;
  F s = r * r;
  F c = fma_(poly(s, -0.5f, 0.0416666456f, -0.00138873083f, 2.44321091e-05f), s, cst<F>(1));
  F z = fma_(poly(s, -0.166666538f, 0.00833210628f, -0.000195078828f) * s, r, r);
  F v = sel((q & 1) != I{}, c, z);
  return bits<F>(bits<uint_<F>>(v) ^ (bits<uint_<F>>((I)((q & 2) << 30)) ^ sign));
}
constexpr float CIRCULAR_LIMIT = 65536;
template <class V> AI V v_sin(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return sin(a); });
  else {
    V a = v_abs(x), r = circular(a, 0, sign_bit(x));
    auto big = mask_not(a <= cst<V>(CIRCULAR_LIMIT));
    if (__builtin_expect(any_lane(big), 0)) return large_arguments(x, r, CIRCULAR_LIMIT, sinf);
    return r;
  }
}
template <class V> AI V v_cos(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return cos(a); });
  else {
    V a = v_abs(x), r = circular(a, 1, uint_<V>{});
    auto big = mask_not(a <= cst<V>(CIRCULAR_LIMIT));
    if (__builtin_expect(any_lane(big), 0)) return large_arguments(x, r, CIRCULAR_LIMIT, cosf);
    return r;
  }
}
COLD float tan_large(float x) { return (float)tan((double)x); }
template <class V> AI V v_tan(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return tan(a); });
  else {
    V r = in_double(x, IN_DOUBLE {
      typedef decltype(d) D;
      sint<D> q;
      D k = nearest(d, 0.6366197723675814, q);
      D t = fma_(k, cst<D>(-6.077100506506192e-11), fma_(k, cst<D>(-1.5707963267341256), d));
      D s = t * t;
      D sn = t * poly(s, 0.9999999999999998, -0.16666666666666197, 0.008333333333232431, -0.00019841269762054477,
                      2.7557291294484707e-06, -2.504737113511194e-08, 1.57056004381009e-10);
      D cs = poly(s, 0.9999999999999996, -0.4999999999999475, 0.04166666666559544, -0.0013888888804733576,
                  2.480155482551158e-05, -2.755071239608485e-07, 2.0195699276970313e-09, 1.6626780922044907e-11);
      auto odd = (q & 1) != sint<D>{};
      return sel(odd, -cs, sn) / sel(odd, sn, cs);
    });
    r = sel(v_abs(x) < cst<V>(0x1p-12f), x, r);
    auto big = mask_not(v_abs(x) <= cst<V>(CIRCULAR_LIMIT));
    if (__builtin_expect(any_lane(big), 0)) return large_arguments(x, r, CIRCULAR_LIMIT, tan_large);
    return r;
  }
}

// atan on [0, inf) in double, 1e-14: folded to [0, tan(pi/8)] by atan x = pi/4 + atan((x-1)/(x+1)) and pi/2 - atan(1/x).
template <class D> AI D atan_mid(D a) {
  auto big = a > cst<D>(2.414213562373095), mid = a > cst<D>(0.41421356237309503);
  D num = sel(big, cst<D>(-1), sel(mid, a - cst<D>(1), a));
  D den = sel(big, a, sel(mid, a + cst<D>(1), cst<D>(1)));
  D base = sel(big, cst<D>(1.5707963267948966), sel(mid, cst<D>(0.7853981633974483), D{}));
  D t = num / den;
  return base + t * poly(t * t, 0.9999999999999993, -0.33333333333260984, 0.19999999982292266, -0.14285712826806518,
                         0.11111052464673515, -0.09089573942902629, 0.07673836518692412, -0.06507065254815479,
                         0.05026351312688683, -0.025316496780112732);
}
template <class V> AI V v_atan(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return atan(a); });
  else return in_double(x, IN_DOUBLE { return v_copysign(atan_mid(v_abs(d)), d); });
}
template <class V> AI V v_atan2(V y, V x) {
  if constexpr (!is_f32<V>) return each(y, x, [](double a, double b) { return atan2(a, b); });
  else return in_double(y, x, IN_DOUBLE2 {
    typedef decltype(d) D;
    D n = v_abs(d), m = v_abs(e);
    // inf/inf counts as 1, 0/0 as 0
    auto both = (n == inf_<D>()) & (m == inf_<D>());
    D t = sel(both, cst<D>(1), sel(n == D{}, D{}, n / m));
    D r = atan_mid(t);
    r = sel(sign_bit(e) != uint_<D>{}, cst<D>(3.141592653589793) - r, r);
    r = v_copysign(r, d);
    return sel(d != d, d, sel(e != e, e, r));
  });
}
// asin on [0, 1/2] is a polynomial; beyond, asin x = pi/2 - 2 asin(sqrt((1-x)/2)).
template <class D> AI D asin_core(D x) {
  return x * poly(x * x, 0.9999999999999999, 0.1666666666668534, 0.07499999995902665, 0.04464286037634057,
                  0.030381817199894863, 0.022375053607845495, 0.017311663213579097, 0.01434337869439067,
                  0.009267321697067244, 0.01862976437981884, -0.012399028468689989, 0.032070993400586806);
}
template <class V> AI V v_asin(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return asin(a); });
  else return in_double(x, IN_DOUBLE {
    typedef decltype(d) D;
    D a = v_abs(d);
    auto big = a > cst<D>(0.5);
    D r = asin_core(sel(big, v_sqrt((cst<D>(1) - a) * cst<D>(0.5)), a));
    return v_copysign(sel(big, cst<D>(1.5707963267948966) - (r + r), r), d);
  });
}
template <class V> AI V v_acos(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return acos(a); });
  else return in_double(x, IN_DOUBLE {
    typedef decltype(d) D;
    D a = v_abs(d);
    auto big = a > cst<D>(0.5);
    D r = asin_core(sel(big, v_sqrt((cst<D>(1) - a) * cst<D>(0.5)), a));
    D far = sel(d < D{}, cst<D>(3.141592653589793) - (r + r), r + r);
    return sel(big, far, cst<D>(1.5707963267948966) - v_copysign(r, d));
  });
}

// ---- hyperbolic functions -------------------------------------------------------------------------------------------

template <class V> AI V v_sinh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return sinh(a); });
  else {
    V r = in_double(x, IN_DOUBLE {
      typedef decltype(d) D;
      D e = exp_mid(d);
      return cst<D>(0.5) * (e - cst<D>(1) / e);
    });
    return sel(v_abs(x) < cst<V>(0x1p-12f), x, r);
  }
}
template <class V> AI V v_cosh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return cosh(a); });
  else return in_double(x, IN_DOUBLE {
    typedef decltype(d) D;
    D e = exp_mid(v_abs(d));
    return cst<D>(0.5) * (e + cst<D>(1) / e);
  });
}
template <class V> AI V v_asinh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return asinh(a); });
  else {
    V r = in_double(x, IN_DOUBLE {
      typedef decltype(d) D;
      D a = v_abs(d);
      return v_copysign(log_mid(a + v_sqrt(a * a + cst<D>(1))), d);
    });
    return sel(v_abs(x) < cst<V>(0x1p-12f), x, r);
  }
}
template <class V> AI V v_acosh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return acosh(a); });
  else return in_double(x, IN_DOUBLE {
    typedef decltype(d) D;
    D one = cst<D>(1);
    return sel(d < one, nan_<D>(), log_mid(d + v_sqrt((d - one) * (d + one))));
  });
}
template <class V> AI V v_atanh(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return atanh(a); });
  else {
    V r = in_double(x, IN_DOUBLE {
      typedef decltype(d) D;
      D a = v_abs(d), one = cst<D>(1);
      return v_copysign(cst<D>(0.5) * log_mid((one + a) / (one - a)), d);
    });
    return sel(v_abs(x) < cst<V>(0x1p-12f), x, sel(v_abs(x) > cst<V>(1), nan_<V>(), r));
  }
}

// ---- error function and gamma -----------------------------------------------------------------------------------------

// |x| <= 0.84: odd polynomial. Beyond: 1 - exp(-P(|x|)), where P fits -log(erfc) (the form is N. Juffa's).
template <class V> AI V v_erf(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return erf(a); });
  else if constexpr (HAS_TABLES) return by_table(x, 4.0f, ERF);
  else {
    V a = v_abs(x), s = x * x;
    V small = fma_(poly(s, 0.128379166f, -0.376125932f, 0.112829164f, -0.02680986f, 0.00506260898f, -0.00063801097f), x, x);
    V t = machine_min(cst<V>(4), a);  // nan stays
    V p = poly(t, 9.18517617e-05f, 1.12811625f, 0.636421084f, 0.104615971f, -0.022564413f, 0.00312970788f, -0.000204931886f);
    V big = v_copysign(cst<V>(1) - exp_inside(-p), x);
    return sel(a > cst<V>(0.84f), big, small);
  }
}
template <class V> AI V v_erfc(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return erfc(a); });
  else return in_double(x, IN_DOUBLE {
    typedef decltype(d) D;
    D a = v_abs(d), s = d * d, one = cst<D>(1), two = cst<D>(2);
    D small = one - d * poly(s, 1.1283791670953767, -0.37612638898080425, 0.11283791358161074, -0.02686609857130911,
                             0.005223184366976447, -0.0008503289311895031, 0.00010773519495247188);
    // erfc(a) exp(a^2) (1 + 2a) is smooth in (a-2)/(a+2)
    D b = sel(a > cst<D>(10.3), cst<D>(10.3), a);
    D t = (b - two) / (b + two);
    D p = poly(t, 1.2769783815520204, -0.092763826581464, -0.16603039747453371, 0.16405127962517232, -0.054220007370862154,
               -0.008034003573826524, 0.008722763095422945, 0.0012711932041902375, -0.0014577192377676176,
               -0.0004533800823506064, 0.00021035181585443992, 0.00014763127785963646, -1.090608820732352e-05,
               -3.0371599627322484e-05, -2.464880931609923e-06);
    D tail = exp_mid(-b * b) * p / (one + b + b);
    D big = sel(d < D{}, two - tail, tail);
    return sel(d != d, d, sel(a > cst<D>(0.5), big, small));
  });
}
// A fitted start, then Newton steps on erf (on erfc beyond 1/2, where 1 - |y| is exact).
COLD double scalar_erfinv(double y) {
  double a = __builtin_fabs(y);
  if (a == 0) return y;
  if (!(a < 1)) return a == 1 ? y * __builtin_inf() : __builtin_nan("");
  double w = -log1p(-a * a), x;
  if (w < 5)
    x = a * poly(w, 0.8862269274519835, 0.23201355601015117, 0.011550335500539625, -0.002338540515171862, -0.000122002729789437,
                 4.048685180928634e-05, 5.835611137752545e-06, -2.49787798252825620e-06, 3.0979756602957055e-07,
                 -1.7161456401509522e-08, 3.3554606592118927e-10);
  else {  // leading terms of the asymptotic series
    double l = log(w);
    x = __builtin_sqrt(w - 0.5 * (l + 1.1447298858494002));
  }
  for (int i = 0; i < 4; i++) {
    double f = a < 0.5 ? erf(x) - a : (1 - a) - erfc(x);
    double d = f / (1.1283791670955126 * exp(-x * x));
    x -= d / (1 + x * d);  // Halley
  }
  return __builtin_copysign(x, y);
}
COLD double scalar_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}
// Reflection for negative arguments, recurrence up to 10, then the asymptotic series.
COLD double scalar_digamma(double x) {
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double r = 0;
  if (x < 0) {
    double f = x - floor(x + 0.5);  // tan has period 1 here; reduced to [-1/2, 1/2] it is exact near the poles
    if (f == 0) return __builtin_nan("");
    // Near its zeros the result is what two terms of size 4 leave of each other: the rounding of pi f would show.
    double angle = 3.141592653589793 * f;
    double rest = __builtin_fma(3.141592653589793, f, -angle) + 1.2246467991473532e-16 * f;
    double t = tan(angle);
    r = -3.141592653589793 / (t + rest * (1 + t * t));
    x = 1 - x;
  }
  for (; x < 10; x += 1) r -= 1 / x;
  double z = 1 / (x * x);
  double s = z * poly(z, 1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12);
  return r + log(x) - 0.5 / x - s;
}
template <class V> AI V v_erfinv(V x) { return each(x, [](double a) { return scalar_erfinv(a); }); }
template <class V> AI V v_lgamma(V x) { return each(x, [](double a) { return scalar_lgamma(a); }); }
template <class V> AI V v_digamma(V x) { return each(x, [](double a) { return scalar_digamma(a); }); }

// ---- two arguments ------------------------------------------------------------------------------------------------------

// exp(y log|x|) in double; signs and special values by the rules of C.
template <class V> AI V v_pow(V x, V y) {
  if constexpr (!is_f32<V>) return each(x, y, [](double a, double b) { return pow(a, b); });
  else return in_double(x, y, IN_DOUBLE2 {
    typedef decltype(d) D;
    D a = v_abs(d), one = cst<D>(1);
    D t = e * log_mid(a);
    D r = exp_mid(t);
    auto whole = v_trunc(e) == e;
    auto odd = whole & (v_trunc(e * cst<D>(0.5)) != e * cst<D>(0.5));
    r = sel((d < D{}) & mask_not(whole) & (a < inf_<D>()), nan_<D>(), r);
    auto flip = odd & (sign_bit(d) != uint_<D>{});
    r = sel(flip, -r, r);
    r = sel((a == one) & (v_abs(e) == inf_<D>()), one, r);
    r = sel((d == one) | (e == D{}), one, r);
    return r;
  });
}
template <class V> AI V v_hypot(V x, V y) {
  if constexpr (!is_f32<V>) return each(x, y, [](double a, double b) { return hypot(a, b); });
  else {
    V r = in_double(x, y, IN_DOUBLE2 { return v_sqrt(d * d + e * e); });
    return sel((v_abs(x) == inf_<V>()) | (v_abs(y) == inf_<V>()), inf_<V>(), r);
  }
}
template <class V> AI V v_nextafter(V x, V y) {
  if constexpr (is_f32<V>) return each(x, y, [](float a, float b) { return nextafterf(a, b); });
  else return each(x, y, [](double a, double b) { return nextafter(a, b); });
}
#include "vec_arith.h"
