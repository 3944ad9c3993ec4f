// Circular and hyperbolic functions of vectors and their inverses; see vec_math.h.
#pragma once
#include "vec_exp.h"

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
// sin of 0 <= x <= 65536, with the sign bits in `sign` flipped, or cos of it: x less its nearest multiple of pi (for cos the
// nearest one and a half), in three parts (Cody and Waite), then one odd polynomial up to pi/2, off by 0.1 ulp at most.
template <bool COS, class F> AI F circular(F x, uint_<F> sign) {
  typedef sint<F> I;
  I q;
  F z, k;
  if constexpr (COS) k = nearest(fma_(x, cst<F>(0.318309886f), cst<F>(-0.5f)), 1, q) + cst<F>(0.5f);
  else k = nearest(x, 0.318309886, q);
  if constexpr (HAS_FMA) {
    F r = fma_(k, cst<F>(-3.14159274f), x);
    r = fma_(k, cst<F>(8.74227766e-8f), r);
    r = fma_(k, cst<F>(3.430249e-15f), r);
    F s = r * r;
    z = fma_(poly(s, -0.166666597f, 0.00833306555f, -0.000198096037f, 2.60575871e-06f), s * r, r);
  } else {  // k * first part is exact in double
    z = in_double(x, k, IN_DOUBLE2 {
      typedef decltype(d) D;
      D r = (d - e * cst<D>(3.1415926534682512)) - e * cst<D>(1.2154201013012384e-10), s = r * r;
      return r + poly(s, -0.166666597, 0.00833306555, -0.000198096037, 2.60575871e-06) * s * r;
    });
  }
  if constexpr (COS) q = ~q;  // cos(r + (q + 1/2) pi) = -sin(r), and the other sign where q is odd
  return bits<F>(bits<uint_<F>>(z) ^ bits<uint_<F>>((I)(q << 31)) ^ sign);
}
constexpr float CIRCULAR_LIMIT = 65536;
template <class V> AI V v_sin(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return sin(a); });
  else {
    V a = v_abs(x), r = circular<false>(a, sign_bit(x));
    auto big = mask_not(a <= cst<V>(CIRCULAR_LIMIT));
    if (__builtin_expect(any_lane(big), 0)) return large_arguments(x, r, CIRCULAR_LIMIT, sinf);
    return r;
  }
}
template <class V> AI V v_cos(V x) {
  if constexpr (!is_f32<V>) return each(x, [](double a) { return cos(a); });
  else {
    V a = v_abs(x), r = circular<true>(a, uint_<V>{});
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
