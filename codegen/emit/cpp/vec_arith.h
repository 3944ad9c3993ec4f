// Arithmetic with ATen's rules: integer division and shifts, remainders, NaN in maxima, reductions over lanes.
#pragma once

// Integers wrap around: they are added as unsigned, so that overflow is defined.
template <class V, class Fn> AI V wrap(V a, V b, Fn f) {
  if constexpr (is_float<V>) return f(a, b);
  else return bits<V>((uint_<V>)f(bits<uint_<V>>(a), bits<uint_<V>>(b)));
}
template <class V> AI V v_add(V a, V b) { return wrap(a, b, [](auto x, auto y) __attribute__((always_inline)) { return x + y; }); }
template <class V> AI V v_sub(V a, V b) { return wrap(a, b, [](auto x, auto y) __attribute__((always_inline)) { return x - y; }); }
template <class V> AI V v_mul(V a, V b) {
  // u16 * u16 promotes to int and may overflow as a scalar: multiply as u32 then.
  if constexpr (lanes<V> == 1 && sizeof(V) < 4) return (V)((u32)a * (u32)b);
  else return wrap(a, b, [](auto x, auto y) __attribute__((always_inline)) { return x * y; });
}
template <class V> AI V v_div(V a, V b) { return a / b; }
AI double v_float_of_bits(i64 a) { return bits<double>(a); }
template <class V> AI V v_neg(V a) {
  if constexpr (is_float<V>) return -a;
  else return v_sub(V{}, a);
}
template <class V> AI V v_sign(V a) {
  V one = cst<V>(1), r = sel(a > V{}, one, V{});
  if constexpr (same<elem<V>, u8>) return r;
  else return sel(a < V{}, (V)(V{} - one), r);
}

template <class V> AI V v_maximum(V a, V b) {
  if constexpr (is_float<V>) return sel(a != a, a, machine_max(a, b));
  else return sel(a > b, a, b);
}
template <class V> AI V v_minimum(V a, V b) {
  if constexpr (is_float<V>) return sel(a != a, a, machine_min(a, b));
  else return sel(a < b, a, b);
}
template <class V> AI V v_fmax(V a, V b) { return sel((a > b) | (b != b), a, b); }
template <class V> AI V v_fmin(V a, V b) { return sel((a < b) | (b != b), a, b); }

template <class V> AI V v_and(V a, V b) { return a & b; }
template <class V> AI V v_or(V a, V b) { return a | b; }
template <class V> AI V v_xor(V a, V b) { return a ^ b; }
template <class V> AI V v_not(V a) { return ~a; }

// A divisor of 0 occurs in unused lanes alone; -1 is taken apart, since lowest / -1 traps.
template <class V> AI V v_div_trunc(V a, V b) {
  if constexpr (is_float<V>) return v_trunc(a / b);
  else if constexpr (same<elem<V>, u8>) return a / sel(b == V{}, cst<V>(1), b);
  else {
    auto minus = b == cst<V>(-1);
    V q = a / sel((b == V{}) | minus, cst<V>(1), b);
    return sel(minus, v_neg(a), q);
  }
}
template <class V> AI V v_fmod(V a, V b);
template <class V> AI V v_div_floor(V a, V b) {
  if constexpr (same<elem<V>, u8>) return v_div_trunc(a, b);
  else if constexpr (!is_float<V>) {
    V q = v_div_trunc(a, b);
    V r = v_sub(a, v_mul(q, b));
    return sel((r != V{}) & ((r < V{}) != (b < V{})), v_sub(q, cst<V>(1)), q);
  } else {  // Python's floor division, step by step as in ATen
    V m = v_fmod(a, b);
    V d = (a - m) / b;
    d = sel((m != V{}) & ((b < V{}) != (m < V{})), d - cst<V>(1), d);
    V f = v_floor(d);
    f = sel(d - f > cst<V>(0.5), f + cst<V>(1), f);
    f = sel(d == V{}, v_copysign(V{}, a / b), f);
    return sel(b == V{}, a / b, f);
  }
}
// Exact: with |quotient| < 2^27 its whole part is right in double and quotient * divisor fits; libm does the rest.
template <class V> COLD void fmod_lanes(const V *a, const V *b, V *r) { *r = each(*a, *b, [](float x, float y) { return fmodf(x, y); }); }
template <class V> AI V v_fmod(V a, V b) {
  if constexpr (same<elem<V>, double>) return each(a, b, [](double x, double y) { return fmod(x, y); });
  else if constexpr (same<elem<V>, float>) {
    V r = in_double(a, b, IN_DOUBLE2 { return v_copysign(d - v_trunc(d / e) * e, d); });
    auto hard = mask_not((v_abs(a) < v_abs(b) * cst<V>(0x1p27f)) & (v_abs(b) < inf_<V>()));
    if (__builtin_expect(any_lane(as_mask<sint<V>>(hard)), 0)) fmod_lanes(&a, &b, &r);
    return r;
  }
  else return v_sub(a, v_mul(v_div_trunc(a, b), b));
}
template <class V> AI V v_remainder(V a, V b) {
  V m = v_fmod(a, b);
  if constexpr (same<elem<V>, u8>) return m;
  else return sel((m != V{}) & ((b < V{}) != (m < V{})), v_add(m, b), m);
}

template <class V> AI V v_shl(V a, V b) {
  typedef uint_<V> U;
  constexpr int width = 8 * sizeof(elem<V>);
  U n = bits<U>(b);
  auto out = n >= cst<U>(width);
  return sel(out, V{}, bits<V>((U)(bits<U>(a) << sel(out, U{}, n))));
}
template <class V> AI V v_shr(V a, V b) {
  typedef uint_<V> U;
  constexpr int width = 8 * sizeof(elem<V>);
  U n = bits<U>(b);
  // a signed number shifted by its width - 1 is all sign; an unsigned one has nothing left
  if constexpr (same<elem<V>, u8>) return sel(n >= cst<U>(width), V{}, (V)(a >> sel(n >= cst<U>(width), U{}, n)));
  else return (V)(a >> bits<V>(sel(n >= cst<U>(width), cst<U>(width - 1), n)));
}

template <class V> AI V v_round_bf16(V x) {  // to nearest, ties to even, in place; a NaN stays itself
  typedef vec<u32, lanes<V>> U;
  U up = bits<U>(x) + splat<U>(0x8000);
  U tie = sel((up & 0xffff) == U{}, splat<U>(0xfffe0000u), splat<U>(0xffff0000u));
  return sel(x == x, bits<V>(up & tie), x);
}
template <class V> AI V v_round_f16(V x) { return widen_f16<lanes<V>>(narrow_f16<lanes<V>>(x)); }

// ---- over lanes -----------------------------------------------------------------------------------------------------

// Pairs, then pairs of pairs: the shortest chain, and the smallest error of a sum.
template <class V, class Fn> AI elem<V> across(V v, Fn f) {
  constexpr int N = lanes<V>;
  if constexpr (N == 1) return v;
  else if constexpr (N == 2) return f(v[0], v[1]);
  else {
    typedef vec<elem<V>, N / 2> H;
    H h[2];
    __builtin_memcpy(h, &v, sizeof(V));
    return across((H)f(h[0], h[1]), f);
  }
}
#define ACROSS [](auto a, auto b) __attribute__((always_inline))
template <class V> AI elem<V> sum_lanes(V v) { return across(v, ACROSS { return v_add(a, b); }); }
template <class V> AI elem<V> prod_lanes(V v) { return across(v, ACROSS { return v_mul(a, b); }); }
template <class V> AI elem<V> max_lanes(V v) { return across(v, ACROSS { return v_maximum(a, b); }); }
template <class V> AI elem<V> min_lanes(V v) { return across(v, ACROSS { return v_minimum(a, b); }); }

// One step of argmax (Sign 1) or argmin (Sign -1): a NaN beats every number, the first of equals stays.
template <int Sign, class V, class P, class K> AI void arg_step(V &best, P &at, V v, P where, K used) {
  auto better = Sign > 0 ? v > best : v < best;
  auto take = as_mask<K>(better);
  if constexpr (is_float<V>) take = (take | as_mask<K>(v != v)) & as_mask<K>(best == best);
  take = (take | as_mask<K>(at < P{})) & used;  // at < 0: no candidate yet
  best = sel(take, v, best);
  at = sel(take, where, at);
}
// The same for two candidates a lane, in any order.
template <int Sign, class V, class P> AI void arg_join(V &best, P &at, V v, P where) {
  typedef sint<P> K;
  K better = as_mask<K>(Sign > 0 ? v > best : v < best), equal = as_mask<K>(v == best);
  if constexpr (is_float<V>) {
    const K nan = as_mask<K>(v != v), old = as_mask<K>(best != best);
    better = (better | nan) & ~old;
    equal = equal | (nan & old);
  }
  const K take = (better | (equal & (where < at)) | (at < P{})) & (where >= P{});
  best = sel(take, v, best);
  at = sel(take, where, at);
}
// The best of the lanes; at: where it stands, -1 without any candidate.
template <int Sign, class V, class P> AI void arg_lanes(V v, P where, elem<V> &best, i64 &at) {
  typedef sint<P> K;
  K found = where >= P{};
  const elem<V> limit = best;
  const V candidates = sel(found, v, splat<V>(limit));
  const elem<V> top = Sign > 0 ? max_lanes(candidates) : min_lanes(candidates);  // nan, if there is one
  if (top == top) found = found & as_mask<K>(v == splat<V>(top));
  else found = found & as_mask<K>(v != v);
  if (!any_lane(found)) return;
  const P first = splat<P>(min_lanes(sel(found, where, splat<P>((elem<P>)(~0ul >> (65 - 8 * sizeof(elem<P>)))))));
  at = first[0];
  best = v[__builtin_ctzl(lane_bits((K)(found & (where == first))))];  // zeros of both signs are equal
}

// i64 in [-extent, extent) made >= 0. Out of range in a used lane: the flag is set and the lane reads element 0.
template <class V> AI V checked(V v, i64 extent, int m, i64 *flag) {
  auto in = (v >= cst<V>(-extent)) & (v < cst<V>(extent));
  auto used = lanes_below<mask<V>>(m);
  if (__builtin_expect(any_lane((mask<V>)(used & mask_not(in))), 0)) *(volatile i64 *)flag = 1;
  return sel(in, sel(v < V{}, v + cst<V>(extent), v), V{});
}

// ---- loops and indices ------------------------------------------------------------------------------------------------

AI i64 smaller(i64 a, i64 b) { return a < b ? a : b; }
AI i64 larger(i64 a, i64 b) { return a < b ? b : a; }
AI i64 floordiv(i64 a, i64 b) { return a / b - (a % b < 0); }
AI i64 floormod(i64 a, i64 b) {
  i64 r = a % b;
  return r < 0 ? r + b : r;
}
template <class V, class Fn> AI V lanes_of(Fn f) {
  elem<V> a[lanes<V>];
  for (int l = 0; l < lanes<V>; l++) a[l] = f(l);
  V r;
  __builtin_memcpy(&r, a, sizeof(V));
  return r;
}

// Long sums: `acc` moves to high + low without loss (Knuth's two-sum) and starts anew. With inf or nan in play the
// compensation is nan, and is dropped at the end: high alone is then what plain addition gives.
template <class V> AI void two_sum(V &high, V &low, V &acc) {
  V t = high + acc, b = t - high;
  low = low + ((high - (t - b)) + (acc - b));
  high = t;
  acc = V{};
}
template <class V> AI V two_sum_total(V high, V low, V acc) {
  two_sum(high, low, acc);
  return high + sel(low == low, low, V{});
}
template <class V, class T> AI void two_sum_row(T *high, T *low, T *row) {
  V h = load<V>(high), l = load<V>(low), r = load<V>(row);
  two_sum(h, l, r);
  store(high, h);
  store(low, l);
  store(row, r);
}
