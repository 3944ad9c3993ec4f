// Roots, rounding, exponentials and logarithms of vectors, and what the other functions are made of; see vec_math.h.
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
