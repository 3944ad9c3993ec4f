// Vectors of any width on top of the compiler's vector extension (g++ and clang), without any standard header.
//
// vec<T, N> is N lanes of T; vec<T, 1> is T itself, so every function below works on scalars too.
// A truth value is a mask of integer lanes, 0 or -1 (for scalars: bool); masks of any lane width convert to each other.
// Lanes beyond the end of a row are never read or written: *_part functions take the number of lanes in use.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long i64;
typedef unsigned long u64;
static_assert(sizeof(i64) == 8, "needs 64-bit long");

#define AI static inline __attribute__((always_inline))
#define COLD static __attribute__((noinline, cold))

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

// ---- types ------------------------------------------------------------------------------------------------------

template <class T, int N> struct vec_of { typedef T type __attribute__((vector_size(sizeof(T) * N))); };
template <class T> struct vec_of<T, 1> { typedef T type; };
template <class T, int N> using vec = typename vec_of<T, N>::type;

template <class T> struct strip { typedef T type; };
template <class T> struct strip<T &> { typedef T type; };
template <class T> struct strip<T &&> { typedef T type; };  // what clang calls an element of a vector that has no name
template <class T> struct strip<const T &> { typedef T type; };
template <class V> struct info {
  typedef typename strip<decltype(V{}[0])>::type E;
  static constexpr int N = sizeof(V) / sizeof(E);
};
#define SCALAR_INFO(T) template <> struct info<T> { typedef T E; static constexpr int N = 1; };
SCALAR_INFO(bool) SCALAR_INFO(i8) SCALAR_INFO(u8) SCALAR_INFO(i16) SCALAR_INFO(u16) SCALAR_INFO(i32) SCALAR_INFO(u32)
SCALAR_INFO(i64) SCALAR_INFO(u64) SCALAR_INFO(float) SCALAR_INFO(double)
template <class V> using elem = typename info<V>::E;
template <class V> constexpr int lanes = info<V>::N;

template <int B> struct int_of_size;
template <> struct int_of_size<1> { typedef i8 S; typedef u8 U; };
template <> struct int_of_size<2> { typedef i16 S; typedef u16 U; };
template <> struct int_of_size<4> { typedef i32 S; typedef u32 U; };
template <> struct int_of_size<8> { typedef i64 S; typedef u64 U; };
template <class V> using sint = vec<typename int_of_size<sizeof(elem<V>)>::S, lanes<V>>;
template <class V> using uint_ = vec<typename int_of_size<sizeof(elem<V>)>::U, lanes<V>>;

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
template <class V> constexpr bool is_float = same<elem<V>, float> || same<elem<V>, double>;

template <class To, class From> AI To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "bits of equal size");
  To r;
  __builtin_memcpy(&r, &x, sizeof(To));
  return r;
}

template <class V> AI V splat(elem<V> x) {
  if constexpr (lanes<V> == 1) return x;
  else return x - V{};  // x - 0 keeps -0.0, x + 0 would not
}
// counted<N> is numbers<int, 0, 1, ..., N - 1>: constant vectors are written out from it, since a loop over their lanes
// runs at -O1, and what it stored lane by lane is then waited for.
template <class T, T... I> struct numbers {};
#ifdef __clang__
template <int N> using counted = __make_integer_seq<numbers, int, N>;
#else
template <int N> using counted = numbers<int, __integer_pack(N)...>;
#endif
template <class V, int... I> AI V iota_of(numbers<int, I...>) { return V{(elem<V>)I...}; }
template <class V> AI V iota() { return iota_of<V>(counted<lanes<V>>()); }
template <class V> AI elem<V> lane(V v, int l) {
  if constexpr (lanes<V> == 1) return v;
  else return v[l];
}
template <class V> AI void set_lane(V &v, int l, elem<V> x) {
  if constexpr (lanes<V> == 1) v = x;
  else v[l] = x;
}

// ---- masks ------------------------------------------------------------------------------------------------------

template <class V> struct mask_of { typedef sint<V> type; };
#define SCALAR_MASK(T) template <> struct mask_of<T> { typedef bool type; };
SCALAR_MASK(bool) SCALAR_MASK(i8) SCALAR_MASK(u8) SCALAR_MASK(i16) SCALAR_MASK(u16) SCALAR_MASK(i32) SCALAR_MASK(u32)
SCALAR_MASK(i64) SCALAR_MASK(u64) SCALAR_MASK(float) SCALAR_MASK(double)
template <class V> using mask = typename mask_of<V>::type;

// A mask as the mask type M (lanes widen or narrow by sign).
template <class M, class K> AI M as_mask(K k) {
  if constexpr (lanes<M> == 1) return (M)k;
  else if constexpr (sizeof(M) == sizeof(K)) return bits<M>(k);
  else return __builtin_convertvector(k, M);
}
template <class K, class V> AI V sel(K k, V a, V b) {
  if constexpr (lanes<V> == 1) return k ? a : b;
  else return as_mask<sint<V>>(k) ? a : b;
}
template <class K> AI K mask_not(K k) {
  if constexpr (lanes<K> == 1) return !k;
  else return ~k;
}
// Lanes below m.
template <class M> AI M lanes_below(int m) {
  if constexpr (lanes<M> == 1) return m > 0;
  else return iota<M>() < splat<M>((elem<M>)m);
}
// Lanes l with base + l below the end (or at it).
template <class M> AI M lanes_before(i64 base, i64 end, bool with_end) {
  constexpr u64 N = lanes<M>;
  if (end < base) return lanes_below<M>(0);
  const u64 count = (u64)end - (u64)base;
  return lanes_below<M>(count >= N ? (int)N : (int)count + with_end);
}
template <class M> AI M splat_mask(bool b) {
  if constexpr (lanes<M> == 1) return b;
  else return splat<M>((elem<M>)(b ? -1 : 0));
}
template <class M> AI bool any_lane(M m) {
  if constexpr (lanes<M> == 1) return m;
#ifdef __AVX512DQ__
  else if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 4) return __builtin_ia32_cvtd2mask512(bits<vec<int, 16>>(m)) != 0;
  else if constexpr (sizeof(M) == 64 && sizeof(elem<M>) == 8) return __builtin_ia32_cvtq2mask512(bits<vec<long long, 8>>(m)) != 0;
#endif
#ifdef __AVX__
  else if constexpr (sizeof(M) == 32) return !__builtin_ia32_ptestz256(bits<vec<long long, 4>>(m), bits<vec<long long, 4>>(m));
#endif
  else {
    elem<M> any = 0;
    for (int l = 0; l < lanes<M>; l++) any |= m[l];
    return any != 0;
  }
}
template <class M> AI bool all_lanes(M m) { return !any_lane(mask_not(m)); }

// ---- conversions: as the C++ casts of ATen on x86 -----------------------------------------------------------------

template <class V, class From> AI V convert(From x) {
  typedef elem<V> T;
  typedef elem<From> S;
  constexpr int N = lanes<V>;
  static_assert(N == lanes<From>, "conversion keeps the lanes");
  if constexpr (same<T, S>) return x;
  else if constexpr (is_float<From> && !is_float<V> && sizeof(T) < 4) {
    // Float to a narrow integer goes through a wider one and is cut: -1.0 becomes 255 as u8. ATen takes u8 through i64.
    typedef typename int_of_size<(same<T, u8> && sizeof(S) == 8) ? 8 : 4>::S W;
    return convert<V>(convert<vec<W, N>>(x));
  } else if constexpr (N == 1) return (T)x;
  else return __builtin_convertvector(x, V);
}
// Numbers to truth: everything but zero (NaN too) is true.
template <class M, class V> AI M truth(V x) { return as_mask<M>(x != V{}); }
template <class V, class K> AI V from_mask(K k) { return sel(k, splat<V>((elem<V>)1), V{}); }

// Half floats live in memory as u16.
struct bf16 { u16 raw; };
struct f16 { u16 raw; };

template <int N> AI vec<float, N> widen_bf16(vec<u16, N> h) { return bits<vec<float, N>>(convert<vec<u32, N>>(h) << 16); }
template <int N> AI vec<u16, N> narrow_bf16(vec<float, N> x) {  // to nearest, ties to even; every NaN becomes 0x7fc0
  typedef vec<u32, N> U;
  U u = bits<U>(x);
  U r = (u + (splat<U>(0x7fff) + ((u >> 16) & 1))) >> 16;
  return convert<vec<u16, N>>(sel(x != x, splat<U>(0x7fc0), r));
}
template <int N> AI vec<float, N> widen_f16(vec<u16, N> h) {
  typedef vec<u32, N> U;
  typedef vec<float, N> F;
#ifdef __AVX512F__
  if constexpr (N == 16) return __builtin_ia32_vcvtph2ps512_mask(bits<vec<short, 16>>(h), F{}, -1, 4);
#endif
#ifdef __F16C__
  if constexpr (N == 8) return __builtin_ia32_vcvtph2ps256(bits<vec<short, 8>>(h));
#endif
  // The exponent is rebiased by a multiplication, which makes subnormals right as well.
  U w = convert<U>(h);
  F mag = bits<F>((w & 0x7fff) << 13) * splat<F>(0x1p112f);
  U big = bits<U>(mag) | 0x7f800000u;
  U m = sel((w & 0x7c00) == splat<U>(0x7c00), big, bits<U>(mag));
  return bits<F>(m | ((w & 0x8000) << 16));
}
template <int N> AI vec<u16, N> narrow_f16(vec<float, N> x) {
  typedef vec<u32, N> U;
  typedef vec<float, N> F;
#ifdef __AVX512F__
  if constexpr (N == 16) return bits<vec<u16, 16>>(__builtin_ia32_vcvtps2ph512_mask(x, 0, vec<short, 16>{}, -1));
#endif
#ifdef __F16C__
  if constexpr (N == 8) return bits<vec<u16, 8>>(__builtin_ia32_vcvtps2ph256(x, 0));
#endif
  U u = bits<U>(x), sign = (u >> 16) & 0x8000;
  U a = u & 0x7fffffff;
  // Normal numbers: round at bit 13, rebias. Subnormals: adding 0.5 aligns the mantissa and lets the hardware round.
  U normal = (a - 0x38000000u + 0xfff + ((a >> 13) & 1)) >> 13;
  U small = bits<U>(bits<F>(a) + splat<F>(0.5f)) - 0x3f000000u;
  U r = sel(a < splat<U>(0x38800000u), small, normal);
  r = sel(a >= splat<U>(0x477ff000u), splat<U>(0x7c00), r);
  r = sel(a > splat<U>(0x7f800000u), ((a >> 13) & 0x3ff) | 0x7e00, r);
  return convert<vec<u16, N>>(r | sign);
}

// ---- memory -----------------------------------------------------------------------------------------------------

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
#if defined(__AVX512BW__) && defined(__AVX512VL__)
// Loads under a mask, of bytes and halfwords: the compilers' own functions have a name each, and take pointers that differ.
#ifdef __clang__
#define MASKED_FROM(T, V, p) (const V *)(p)
#else
#define MASKED_FROM(T, V, p) (const T *)(p)
#endif
#define MASKED_LOAD(T, N, K, NAME)                                                                \
  AI vec<T, N> load_masked(const void *p, vec<T, N> zero, u64 mask) {                             \
    typedef vec<T, N> V;                                                                          \
    return (V)__builtin_ia32_loaddqu##NAME##_mask(MASKED_FROM(T, V, p), zero, (K)mask);           \
  }
MASKED_LOAD(char, 64, u64, qi512) MASKED_LOAD(char, 32, u32, qi256) MASKED_LOAD(char, 16, u16, qi128)
MASKED_LOAD(short, 32, u32, hi512) MASKED_LOAD(short, 16, u16, hi256) MASKED_LOAD(short, 8, u8, hi128)
template <class V> constexpr bool loads_masked = sizeof(elem<V>) <= 2 && sizeof(V) >= 16 && sizeof(V) <= 64;
#else
template <class V> constexpr bool loads_masked = false;
#endif
template <class V> AI V load_raw_part(const void *p, int m) {
  typedef elem<V> T;
  const T *q = (const T *)p;
#ifdef __AVX512BW__
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    return bits<V>(__builtin_ia32_loadups512_mask((const float *)p, vec<float, 16>{}, (u16)((1u << m) - 1)));
  else if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    return bits<V>(__builtin_ia32_loadupd512_mask((const double *)p, vec<double, 8>{}, (u8)((1u << m) - 1)));
  else if constexpr (loads_masked<V>) {
    const u64 mask = m >= 64 ? ~0ul : (1ul << m) - 1;
    if constexpr (sizeof(T) == 1) return bits<V>(load_masked(p, vec<char, lanes<V>>{}, mask));
    else return bits<V>(load_masked(p, vec<short, lanes<V>>{}, mask));
  } else
#endif
  {
    if (m == lanes<V>) return load_raw<V>(p);  // a call of memcpy takes its time
    V r{};
    if (m > 0) __builtin_memcpy(&r, q, sizeof(T) * m);
    return r;
  }
}
template <class V> AI void store_raw_part(void *p, V v, int m) {
  typedef elem<V> T;
#ifdef __AVX512BW__
  if constexpr (sizeof(V) == 64 && sizeof(T) == 4)
    __builtin_ia32_storeups512_mask((float *)p, bits<vec<float, 16>>(v), (u16)((1u << m) - 1));
  else if constexpr (sizeof(V) == 64 && sizeof(T) == 8)
    __builtin_ia32_storeupd512_mask((double *)p, bits<vec<double, 8>>(v), (u8)((1u << m) - 1));
  else
#endif
    __builtin_memcpy(p, &v, sizeof(T) * m);
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
// Contiguous lanes where k holds and below m; the common cases (all, none) without a branch a lane.
template <class V, class T, class K> AI V load_where(const T *p, K k, int m) {
  if (m == lanes<V> && all_lanes(k)) return load<V>(p);
  if (!any_lane(k)) return V{};
  return gather_where<V>(p, k, m, [](int l) { return l; });
}
template <class V, class T, class K> AI void store_where(T *p, V v, K k, int m) {
  if (m == lanes<V> && all_lanes(k)) store(p, v);
  else scatter_where(p, v, k, m, [](int l) { return l; });
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
template <int N, class T> AI void transpose(const T *from, i64 stride, T *to, i64 to_stride) {
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
