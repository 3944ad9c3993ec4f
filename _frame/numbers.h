// Arithmetic on the numbers of a call: one row an operation, with Python's exact meaning. Names and meanings are those of
// `dyncomp/shape/ops.py`. Guards on sizes run it, and plans that compute with sizes and with numbers that came in.
//
// A number is 64 bits: an int, a truth (0 or 1), or the bits of a double. An operation says whether there is a result:
// a division by zero, a domain error or an overflow has none.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace dyncomp::numbers {

using Operation = bool (*)(int64_t a, int64_t b, int64_t c, int64_t* result);

inline double real(int64_t bits) { return std::bit_cast<double>(bits); }
inline int64_t bits(double value) { return std::bit_cast<int64_t>(value); }

namespace detail {

using I = int64_t;

inline bool give(I value, I* r) { return *r = value, true; }
inline bool give_real(double value, I* r) { return *r = bits(value), true; }

inline bool add(I a, I b, I, I* r) { return !__builtin_add_overflow(a, b, r); }
inline bool sub(I a, I b, I, I* r) { return !__builtin_sub_overflow(a, b, r); }
inline bool mul(I a, I b, I, I* r) { return !__builtin_mul_overflow(a, b, r); }

inline bool floordiv(I a, I b, I, I* r) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) return false;
  return give(a / b - (a % b != 0 && (a < 0) != (b < 0)), r);
}

inline bool mod(I a, I b, I, I* r) {
  if (b == 0) return false;
  I rest = b == -1 ? 0 : a % b;
  return give(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest, r);
}

inline bool smaller(I a, I b, I, I* r) { return give(b < a ? b : a, r); }
inline bool larger(I a, I b, I, I* r) { return give(b > a ? b : a, r); }

inline bool power(I base, I exponent, I, I* r) {
  if (exponent < 0) return false;
  if (base == 0 || base == 1) return give(exponent == 0 ? 1 : base, r);
  if (base == -1) return give(exponent % 2 == 0 ? 1 : -1, r);
  *r = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(*r, base, r)) return false;
  }
  return true;
}

inline bool shift_left(I a, I b, I, I* r) { return b >= 0 && b <= 62 && !__builtin_mul_overflow(a, I{1} << b, r); }
inline bool shift_right(I a, I b, I, I* r) { return b >= 0 && b <= 63 && give(a >> b, r); }
inline bool bit_and(I a, I b, I, I* r) { return give(a & b, r); }
inline bool bit_or(I a, I b, I, I* r) { return give(a | b, r); }
inline bool bit_xor(I a, I b, I, I* r) { return give(a ^ b, r); }
inline bool equal(I a, I b, I, I* r) { return give(a == b, r); }
inline bool less(I a, I b, I, I* r) { return give(a < b, r); }
inline bool negation(I a, I, I, I* r) { return give(a == 0, r); }
inline bool both(I a, I b, I, I* r) { return give(a != 0 && b != 0, r); }
inline bool either(I a, I b, I, I* r) { return give(a != 0 || b != 0, r); }
inline bool select(I a, I b, I c, I* r) { return give(a != 0 ? b : c, r); }

inline bool exact(I value) {
  constexpr I kExact = I{1} << 53;  // integers up to here are doubles
  return value <= kExact && value >= -kExact;
}

inline bool to_float(I a, I, I, I* r) { return exact(a) && give_real(static_cast<double>(a), r); }
inline bool true_divide(I a, I b, I, I* r) {
  return b != 0 && exact(a) && exact(b) && give_real(static_cast<double>(a) / static_cast<double>(b), r);
}

inline bool fadd(I a, I b, I, I* r) { return give_real(real(a) + real(b), r); }
inline bool fsub(I a, I b, I, I* r) { return give_real(real(a) - real(b), r); }
inline bool fmul(I a, I b, I, I* r) { return give_real(real(a) * real(b), r); }
inline bool fdiv(I a, I b, I, I* r) { return real(b) != 0.0 && give_real(real(a) / real(b), r); }

// Python's % and // on floats: the remainder has the divisor's sign.
inline bool fmod(I a, I b, I, I* r) {
  double x = real(a), y = real(b);
  if (y == 0.0) return false;
  double rest = std::fmod(x, y);
  if (rest == 0.0) {
    rest = std::copysign(0.0, y);
  } else if ((y < 0) != (rest < 0)) {
    rest += y;
  }
  return give_real(rest, r);
}

inline bool ffloordiv(I a, I b, I, I* r) {
  double x = real(a), y = real(b);
  if (y == 0.0) return false;
  double rest = std::fmod(x, y);
  double quotient = (x - rest) / y;
  if (rest != 0.0 && (y < 0) != (rest < 0)) quotient -= 1.0;
  if (quotient == 0.0) return give_real(std::copysign(0.0, x / y), r);
  double floor = std::floor(quotient);
  return give_real(quotient - floor > 0.5 ? floor + 1.0 : floor, r);
}

inline bool fpow(I a, I b, I, I* r) {
  double x = real(a), y = real(b);
  if ((x == 0.0 && y < 0 && std::isfinite(y)) || (x < 0 && std::isfinite(x) && std::isfinite(y) && y != std::floor(y))) return false;
  double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) return false;
  return give_real(result, r);
}

inline bool fmin(I a, I b, I, I* r) { return give(real(b) < real(a) ? b : a, r); }
inline bool fmax(I a, I b, I, I* r) { return give(real(b) > real(a) ? b : a, r); }
inline bool fneg(I a, I, I, I* r) { return give_real(-real(a), r); }
inline bool fabs(I a, I, I, I* r) { return give_real(std::fabs(real(a)), r); }
inline bool feq(I a, I b, I, I* r) { return give(real(a) == real(b), r); }
inline bool flt(I a, I b, I, I* r) { return give(real(a) < real(b), r); }
inline bool fle(I a, I b, I, I* r) { return give(real(a) <= real(b), r); }
inline bool fisint(I a, I, I, I* r) { return give(std::isfinite(real(a)) && real(a) == std::floor(real(a)), r); }

template <double (*round_to)(double)>
bool whole(I a, I, I, I* r) {
  double value = round_to(real(a));
  return std::fabs(value) < 9223372036854775808.0 && give(static_cast<I>(value), r);
}

// A result that the math module would refuse is none.
template <double (*function)(double)>
bool math(I a, I, I, I* r) {
  double value = function(real(a));
  if (std::isnan(value) && !std::isnan(real(a))) return false;
  if (std::isinf(value) && std::isfinite(real(a))) return false;
  return give_real(value, r);
}

}  // namespace detail

// Types of operands and result, one letter each: i an int or a truth, b a truth, f a float, x as the other x.
struct Row {
  const char* name;
  Operation operation;
  const char* operands;
  char result;
};

inline constexpr Row kRows[] = {
    {"add", detail::add, "ii", 'i'}, {"sub", detail::sub, "ii", 'i'}, {"mul", detail::mul, "ii", 'i'},
    {"floordiv", detail::floordiv, "ii", 'i'}, {"mod", detail::mod, "ii", 'i'},
    {"min", detail::smaller, "ii", 'i'}, {"max", detail::larger, "ii", 'i'}, {"pow", detail::power, "ii", 'i'},
    {"shl", detail::shift_left, "ii", 'i'}, {"shr", detail::shift_right, "ii", 'i'},
    {"bitand", detail::bit_and, "ii", 'i'}, {"bitor", detail::bit_or, "ii", 'i'}, {"bitxor", detail::bit_xor, "ii", 'i'},
    {"eq", detail::equal, "ii", 'b'}, {"lt", detail::less, "ii", 'b'}, {"not", detail::negation, "i", 'b'},
    {"and", detail::both, "ii", 'b'}, {"or", detail::either, "ii", 'b'}, {"select", detail::select, "ixx", 'x'},
    {"tofloat", detail::to_float, "i", 'f'}, {"truediv", detail::true_divide, "ii", 'f'},
    {"fadd", detail::fadd, "ff", 'f'}, {"fsub", detail::fsub, "ff", 'f'}, {"fmul", detail::fmul, "ff", 'f'},
    {"fdiv", detail::fdiv, "ff", 'f'}, {"ffloordiv", detail::ffloordiv, "ff", 'f'}, {"fmod", detail::fmod, "ff", 'f'},
    {"fpow", detail::fpow, "ff", 'f'}, {"fmin", detail::fmin, "ff", 'f'}, {"fmax", detail::fmax, "ff", 'f'},
    {"fneg", detail::fneg, "f", 'f'}, {"fabs", detail::fabs, "f", 'f'},
    {"feq", detail::feq, "ff", 'b'}, {"flt", detail::flt, "ff", 'b'}, {"fle", detail::fle, "ff", 'b'},
    {"fisint", detail::fisint, "f", 'b'},
    {"ffloor", detail::whole<std::floor>, "f", 'i'}, {"fceil", detail::whole<std::ceil>, "f", 'i'},
    {"ftrunc", detail::whole<std::trunc>, "f", 'i'}, {"fround", detail::whole<std::nearbyint>, "f", 'i'},
    {"fsqrt", detail::math<std::sqrt>, "f", 'f'}, {"fcos", detail::math<std::cos>, "f", 'f'},
    {"fcosh", detail::math<std::cosh>, "f", 'f'}, {"fsin", detail::math<std::sin>, "f", 'f'},
    {"fsinh", detail::math<std::sinh>, "f", 'f'}, {"ftan", detail::math<std::tan>, "f", 'f'},
    {"ftanh", detail::math<std::tanh>, "f", 'f'}, {"fasin", detail::math<std::asin>, "f", 'f'},
    {"facos", detail::math<std::acos>, "f", 'f'}, {"fatan", detail::math<std::atan>, "f", 'f'},
    {"flog2", detail::math<std::log2>, "f", 'f'}, {"fexp", detail::math<std::exp>, "f", 'f'},
    {"fexp2", detail::math<std::exp2>, "f", 'f'}, {"fexpm1", detail::math<std::expm1>, "f", 'f'},
    {"flog", detail::math<std::log>, "f", 'f'}, {"flog10", detail::math<std::log10>, "f", 'f'},
    {"flog1p", detail::math<std::log1p>, "f", 'f'}, {"fcbrt", detail::math<std::cbrt>, "f", 'f'},
    {"fasinh", detail::math<std::asinh>, "f", 'f'}, {"facosh", detail::math<std::acosh>, "f", 'f'},
    {"fatanh", detail::math<std::atanh>, "f", 'f'}, {"ferf", detail::math<std::erf>, "f", 'f'},
    {"ferfc", detail::math<std::erfc>, "f", 'f'},
};

}  // namespace dyncomp::numbers
