// Numbers as text for error messages, without C++ streams: an extension whose C++ library is linked in statically has
// locale tables of its own, and formatting a number through a stream that torch's library made reads the wrong one.
#pragma once
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>

namespace dyncomp::executor {

template <class Number>
inline std::string text(Number number) {
  return std::to_string(number);
}

inline std::string text(c10::IntArrayRef numbers) {
  std::string all = "[";
  for (size_t i = 0; i < numbers.size(); ++i) all += (i ? ", " : "") + std::to_string(numbers[i]);
  return all + "]";
}

inline std::string text(c10::SymIntArrayRef numbers) {
  std::string all = "[";
  for (size_t i = 0; i < numbers.size(); ++i) all += (i ? ", " : "") + std::to_string(numbers[i].expect_int());
  return all + "]";
}

}  // namespace dyncomp::executor
