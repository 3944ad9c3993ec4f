// Math on vectors of any width: within 2 ulp of the exact result over the whole float range, special values as in C.
//
// Float functions either work in float, or (where that is simpler to get right and the function is rare) in double on
// half vectors; double functions and rare slow paths call libm a lane at a time. Polynomials are near-minimax fits made
// for this file by iteratively reweighted least squares; the reductions around them are the classical ones, named
// where they stand. Every function is named v_<operation of the loop IR> and takes scalars too.
#pragma once
#include "vec_circular.h"

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
