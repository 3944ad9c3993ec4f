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
