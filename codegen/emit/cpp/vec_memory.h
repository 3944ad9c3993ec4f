// Memory of generated kernels: lanes loaded, stored, gathered, scattered and transposed, whole vectors or some lanes of one.
#pragma once
#include "vec_types.h"

template <class V> struct unaligned {
  typedef V type __attribute__((aligned(1), may_alias));
};
template <class T> struct memory { typedef T raw; };
template <> struct memory<bf16> { typedef u16 raw; };
template <> struct memory<f16> { typedef u16 raw; };
template <> struct memory<bool> { typedef u8 raw; };
template <class T> using raw_of = typename memory<T>::raw;

// What the memory type T holds -> lanes of the compute type V (for bool: a mask type).
template <class T, class V, class R> AI V decode(R raw) {
  if constexpr (same<T, bf16>) return widen_bf16<lanes<V>>(raw);
  else if constexpr (same<T, f16>) return widen_f16<lanes<V>>(raw);
  else if constexpr (same<T, bool>) return as_mask<V>(raw != R{});
  else return raw;
}
template <class T, class V> AI vec<raw_of<T>, lanes<V>> encode(V v) {
  if constexpr (same<T, bf16>) return narrow_bf16<lanes<V>>(v);
  else if constexpr (same<T, f16>) return narrow_f16<lanes<V>>(v);
  else if constexpr (same<T, bool>) return from_mask<vec<u8, lanes<V>>>(v);
  else return v;
}

template <class V> AI V load_raw(const void *p) {
  V r;
  __builtin_memcpy(&r, p, sizeof(V));
  return r;
}
// The lanes of a mask as bits, lane 0 lowest. A lane's mask is all ones or all zeros: its sign tells.
template <class M> AI u64 lane_bits(M m) {
#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
  if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 1) return __builtin_ia32_cvtb2mask512(bits<vec<char, 64>>(m));
  else if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 2) return __builtin_ia32_cvtw2mask512(bits<vec<short, 32>>(m));
  else if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 4) return __builtin_ia32_cvtd2mask512(bits<vec<int, 16>>(m));
  else if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 8) return __builtin_ia32_cvtq2mask512(bits<vec<long long, 8>>(m));
  else if constexpr (sizeof(M) == 32 && sizeof(elem<M>) == 4) return __builtin_ia32_cvtd2mask256(bits<vec<int, 8>>(m));
  else if constexpr (sizeof(M) == 32 && sizeof(elem<M>) == 8) return __builtin_ia32_cvtq2mask256(bits<vec<long long, 4>>(m));
  else
#endif
  {
    u64 r = 0;
    for (int l = 0; l < lanes<M>; l++) r |= (u64)(lane(m, l) != 0) << l;
    return r;
  }
}
AI u64 low_bits(int m) { return m >= 64 ? ~0ul : (1ul << m) - 1; }

// Loads and stores of some lanes only; the others' memory is neither read nor written (it may not exist).
template <class V> constexpr bool has_masked = false;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
// The compilers' own functions have a name each, and take pointers that differ.
#ifdef __clang__
#define POINTEE(T, V) V
#else
#define POINTEE(T, V) T
#endif
#define MASKED(T, N, K, LOAD, STORE)                                                            \
  template <> constexpr bool has_masked<vec<T, N>> = true;                                      \
  AI vec<T, N> load_masked(const void *p, vec<T, N> zero, u64 mask) {                           \
    typedef vec<T, N> V;                                                                        \
    return (V)__builtin_ia32_##LOAD##_mask((const POINTEE(T, V) *)p, zero, (K)mask);            \
  }                                                                                             \
  AI void store_masked(void *p, vec<T, N> v, u64 mask) {                                        \
    typedef vec<T, N> V;                                                                        \
    __builtin_ia32_##STORE##_mask((POINTEE(T, V) *)p, v, (K)mask);                              \
  }
MASKED(char, 64, u64, loaddquqi512, storedquqi512)
MASKED(char, 32, u32, loaddquqi256, storedquqi256)
MASKED(char, 16, u16, loaddquqi128, storedquqi128)
MASKED(short, 32, u32, loaddquhi512, storedquhi512)
MASKED(short, 16, u16, loaddquhi256, storedquhi256)
MASKED(short, 8, u8, loaddquhi128, storedquhi128)
MASKED(float, 16, u16, loadups512, storeups512)
MASKED(float, 8, u8, loadups256, storeups256)
MASKED(double, 8, u8, loadupd512, storeupd512)
MASKED(double, 4, u8, loadupd256, storeupd256)
#endif
// The type under whose name a vector of these bits is loaded.
template <int Bytes> struct masked_name { typedef char type; };
template <> struct masked_name<2> { typedef short type; };
template <> struct masked_name<4> { typedef float type; };
template <> struct masked_name<8> { typedef double type; };
template <class R> using masked_as = vec<typename masked_name<sizeof(elem<R>)>::type, lanes<R>>;
template <class R> constexpr bool masks = has_masked<masked_as<R>>;
template <class R> AI R load_bits(const void *p, u64 mask) { return bits<R>(load_masked(p, masked_as<R>{}, mask)); }
template <class R> AI void store_bits(void *p, R v, u64 mask) { store_masked(p, bits<masked_as<R>>(v), mask); }

template <class V> AI V load_raw_part(const void *p, int m) {
  if constexpr (masks<V>) {
    return load_bits<V>(p, low_bits(m));
  } else {
    if (m == lanes<V>) return load_raw<V>(p);  // a call of memcpy takes its time
    V r{};
    if (m > 0) __builtin_memcpy(&r, p, sizeof(elem<V>) * m);
    return r;
  }
}
template <class V> AI void store_raw_part(void *p, V v, int m) {
  if constexpr (masks<V>) store_bits<V>(p, v, low_bits(m));
  else __builtin_memcpy(p, &v, sizeof(elem<V>) * m);
}

template <class V, class T> AI V load(const T *p) { return decode<T, V>(load_raw<vec<raw_of<T>, lanes<V>>>(p)); }
template <class V, class T> AI V load_part(const T *p, int m) {
  return decode<T, V>(load_raw_part<vec<raw_of<T>, lanes<V>>>(p, m));
}
template <class V, class T> AI void store(T *p, V v) {
  auto r = encode<T>(v);
  __builtin_memcpy(p, &r, sizeof(r));
}
template <class V, class T> AI void store_part(T *p, V v, int m) { store_raw_part(p, encode<T>(v), m); }

// Lanes at p[offset(l)], for l below m.
template <class V, class T, class Offset> AI V gather(const T *p, int m, Offset offset) {
  vec<raw_of<T>, lanes<V>> r{};
  const raw_of<T> *q = (const raw_of<T> *)p;
  if (m == lanes<V>) {
#pragma GCC unroll 64
    for (int l = 0; l < lanes<V>; l++) set_lane(r, l, q[offset(l)]);
  } else {
    raw_of<T> part[lanes<V>] = {};
    for (int l = 0; l < m; l++) part[l] = q[offset(l)];
    __builtin_memcpy(&r, part, sizeof(r));
  }
  return decode<T, V>(r);
}
template <class V, class T, class K, class Offset> AI V gather_where(const T *p, K k, int m, Offset offset) {
  raw_of<T> part[lanes<V>] = {};
  const raw_of<T> *q = (const raw_of<T> *)p;
  for (int l = 0; l < m; l++)
    if (lane(k, l)) part[l] = q[offset(l)];
  vec<raw_of<T>, lanes<V>> r;
  __builtin_memcpy(&r, part, sizeof(r));
  return decode<T, V>(r);
}
template <class V, class T, class Offset> AI void scatter(T *p, V v, int m, Offset offset) {
  auto r = encode<T>(v);
  raw_of<T> *q = (raw_of<T> *)p;
  raw_of<T> part[lanes<V>];
  __builtin_memcpy(part, &r, sizeof(r));
  for (int l = 0; l < m; l++) q[offset(l)] = part[l];
}
template <class V, class T, class K, class Offset> AI void scatter_where(T *p, V v, K k, int m, Offset offset) {
  auto r = encode<T>(v);
  raw_of<T> *q = (raw_of<T> *)p;
  for (int l = 0; l < m; l++)
    if (lane(k, l)) q[offset(l)] = lane(r, l);
}
// Contiguous lanes where k holds and below m.
template <class V, class T, class K> AI V load_where(const T *p, K k, int m) {
  typedef vec<raw_of<T>, lanes<V>> R;
  if constexpr (masks<R>) {
    return decode<T, V>(load_bits<R>(p, lane_bits(k) & low_bits(m)));
  } else {  // the common cases (all, none) without a branch a lane
    if (m == lanes<V> && all_lanes(k)) return load<V>(p);
    if (!any_lane(k)) return V{};
    return gather_where<V>(p, k, m, [](int l) { return l; });
  }
}
template <class V, class T, class K> AI void store_where(T *p, V v, K k, int m) {
  typedef vec<raw_of<T>, lanes<V>> R;
  if constexpr (masks<R>) {
    store_bits<R>(p, encode<T>(v), lane_bits(k) & low_bits(m));
  } else {
    if (m == lanes<V> && all_lanes(k)) store(p, v);
    else scatter_where(p, v, k, m, [](int l) { return l; });
  }
}
// Lanes I... of a (0 to N - 1) and b (N to 2 N - 1).
template <int... I, class R> AI R pick(R a, R b) {
#ifdef __clang__
  return __builtin_shufflevector(a, b, I...);
#else
  return (R)__builtin_shuffle(a, b, sint<R>{I...});
#endif
}
template <class R, int... I> AI R evens(R a, R b, numbers<int, I...>) {
  return pick<(I < lanes<R> / 2 ? 2 * I : 2 * I + 1)...>(a, b);
}
// p[0], p[2], p[4], ... : two whole loads and a shuffle; the last one ends at the last element that is wanted.
template <class V, class T> AI V load_even(const T *p) {
  constexpr int N = lanes<V>;
  typedef vec<raw_of<T>, N> R;
  return decode<T, V>(evens(load_raw<R>(p), load_raw<R>(p + N - 1), counted<N>()));
}

// p[0], p[-1], p[-2], ...
template <class R, int... I> AI R reversed(R a, numbers<int, I...>) {
  return pick<(lanes<R> - 1 - I)...>(a, a);
}
template <class V, class T> AI V load_backwards(const T *p) {
  constexpr int N = lanes<V>;
  typedef vec<raw_of<T>, N> R;
  return decode<T, V>(reversed(load_raw<R>(p - (N - 1)), counted<N>()));
}
// Offsets that grow by 1 a lane except where they jump: one load unless a jump lies between the lanes. Only for offsets
// whose last lane lies as far from the first as without a jump exactly if there is none.
template <class V, class T, class Offset> AI V load_run(const T *p, int m, Offset offset) {
  const i64 first = offset(0);
  if (offset(m - 1) - first != m - 1) return gather<V>(p, m, offset);
  return m == lanes<V> ? load<V>(p + first) : load_part<V>(p + first, m);
}
template <class V, class T, class K, class Offset> AI V load_run_where(const T *p, K k, int m, Offset offset) {
  const i64 first = offset(0);
  return offset(m - 1) - first == m - 1 ? load_where<V>(p + first, k, m) : gather_where<V>(p, k, m, offset);
}

template <class V> constexpr bool wide_enough = lanes<V> >= 4;

// N x N elements: row i starts at from + i * stride; afterwards row j of `to` holds column j.
template <int S, class R, int... I> AI void exchange(R *v, numbers<int, I...>) {
  constexpr int N = sizeof...(I);
#pragma GCC unroll 64
  for (int i = 0; i < N; i++)
    if (!(i & S)) {
      R a = v[i], b = v[i + S];
      v[i] = pick<(I & S ? N + I - S : I)...>(a, b);
      v[i + S] = pick<(I & S ? N + I : I + S)...>(a, b);
    }
}
template <class R, int N> AI void transpose_registers(R *v) {
  exchange<1>(v, counted<N>());
  if constexpr (N > 2) exchange<2>(v, counted<N>());
  if constexpr (N > 4) exchange<4>(v, counted<N>());
  if constexpr (N > 8) exchange<8>(v, counted<N>());
  if constexpr (N > 16) exchange<16>(v, counted<N>());
  if constexpr (N > 32) exchange<32>(v, counted<N>());
}
// Only `rows` rows of `columns` elements exist at `from`.
template <class T>
static __attribute__((noinline)) void transpose_part(const T *from, i64 stride, T *to, i64 to_stride, int rows, int columns) {
  const raw_of<T> *f = (const raw_of<T> *)from;
  raw_of<T> *t = (raw_of<T> *)to;
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) t[j * to_stride + i] = f[i * stride + j];
}
template <class R, bool Wider> struct widened { typedef R type; };
template <class R> struct widened<R, true> { typedef vec<i32, lanes<R>> type; };
// A function of its own: beside the addresses of the loops around it, strides that only the call tells leave too few registers, and
// half the block went over the stack.
template <int N, class T> static __attribute__((noinline)) void transpose(const T *from, i64 stride, T *to, i64 to_stride) {
  typedef vec<raw_of<T>, N> R;
  constexpr bool narrow = sizeof(raw_of<T>) < 4;  // few machines shuffle bytes and halfwords of two registers
  typedef typename widened<R, narrow && N * 4 <= VECTOR_BYTES>::type W;
  if constexpr (narrow && same<R, W>) {
    transpose_part(from, stride, to, to_stride, N, N);
  } else {
    W v[N];
#pragma GCC unroll 64
    for (int i = 0; i < N; i++) v[i] = __builtin_convertvector(load_raw<R>(from + i * stride), W);
    transpose_registers<W, N>(v);
#pragma GCC unroll 64
    for (int i = 0; i < N; i++) {
      const R column = __builtin_convertvector(v[i], R);
      __builtin_memcpy(to + i * to_stride, &column, sizeof(R));
    }
  }
}
