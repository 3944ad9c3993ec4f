// What polynomials are made of: fused multiply-add, the machine's minimum and maximum, constants, signs.
#pragma once
#include "vec_memory.h"

template <class V> AI V fma_(V a, V b, V c) {
  typedef elem<V> T;
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
  else if constexpr (sizeof(V) == 64) return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
  else
#endif
#ifdef __FMA__
  if constexpr (sizeof(V) == 32 && sizeof(T) == 4) return __builtin_ia32_vfmaddps256(a, b, c);
  else if constexpr (sizeof(V) == 32) return __builtin_ia32_vfmaddpd256(a, b, c);
  else if constexpr (sizeof(V) == 16 && sizeof(T) == 4) return __builtin_ia32_vfmaddps(a, b, c);
  else if constexpr (sizeof(V) == 16) return __builtin_ia32_vfmaddpd(a, b, c);
  else if constexpr (lanes<V> == 1 && sizeof(T) == 4) return __builtin_fmaf(a, b, c);
  else if constexpr (lanes<V> == 1) return __builtin_fma(a, b, c);
  else
#endif
    return a * b + c;  // good enough for polynomials; whatever needs a true fma says so
}
#ifdef __FMA__
constexpr bool HAS_FMA = true;
#else
constexpr bool HAS_FMA = false;
#endif

// The machine's own minimum and maximum: b where either is nan.
template <class V> AI V machine_min(V a, V b) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && same<elem<V>, float>) return __builtin_ia32_minps512_mask(a, b, a, -1, 4);
  else
#endif
#if defined(__AVX__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32 && same<elem<V>, float>) return __builtin_ia32_minps256(a, b);
  else
#endif
    return sel(a < b, a, b);
}
template <class V> AI V machine_max(V a, V b) {
#if defined(__AVX512F__) && !defined(__clang__)
  if constexpr (sizeof(V) == 64 && same<elem<V>, float>) return __builtin_ia32_maxps512_mask(a, b, a, -1, 4);
  else
#endif
#if defined(__AVX__) && !defined(__clang__)
  if constexpr (sizeof(V) == 32 && same<elem<V>, float>) return __builtin_ia32_maxps256(a, b);
  else
#endif
    return sel(a > b, a, b);
}

template <class V, class T> AI V cst(T x) { return splat<V>((elem<V>)x); }

// c0 + x * (c1 + x * (c2 + ...)), constants lowest first.
template <class V, class C> AI V poly(V x, C c0) { return cst<V>(c0); }
template <class V, class C, class... Rest> AI V poly(V x, C c0, Rest... rest) { return fma_(poly(x, rest...), x, cst<V>(c0)); }

template <class V> constexpr bool is_f32 = same<elem<V>, float>;

template <class V> AI V v_abs(V x) {
  if constexpr (is_float<V>) return bits<V>(bits<uint_<V>>(x) & (~(elem<uint_<V>>)0 >> 1));
  else if constexpr (same<elem<V>, u8>) return x;
  else {
    uint_<V> u = bits<uint_<V>>(x);
    return sel(x < V{}, bits<V>((uint_<V>)(uint_<V>{} - u)), x);
  }
}
template <class V> AI uint_<V> sign_bit(V x) { return bits<uint_<V>>(x) & ((elem<uint_<V>>)1 << (8 * sizeof(elem<V>) - 1)); }
template <class V> AI V v_copysign(V mag, V sign) { return bits<V>(bits<uint_<V>>(v_abs(mag)) | sign_bit(sign)); }
