// A set of small whole numbers, all below one count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace dyncomp::executor {

class Bits {
 public:
  Bits() = default;
  explicit Bits(std::size_t count) : words_((count + 63) / 64) {}

  // The lowest bit of the first byte stands for 0.
  static Bits from(std::string_view bytes, std::size_t count) {
    Bits bits(count);
    std::memcpy(bits.words_.data(), bytes.data(), std::min(bytes.size(), bits.words_.size() * sizeof(uint64_t)));
    return bits;
  }

  static Bits all(std::size_t count) {
    Bits bits(count);
    for (std::size_t i = 0; i < count; ++i) {
      bits.add(i);
    }
    return bits;
  }

  bool has(std::size_t i) const { return (words_[i / 64] >> i % 64 & 1) != 0; }
  void add(std::size_t i) { words_[i / 64] |= uint64_t{1} << i % 64; }
  bool empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
  }
  bool meets(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((words_[i] & other.words_[i]) != 0) {
        return true;
      }
    }
    return false;
  }
  bool covers(const Bits& other) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      if ((other.words_[i] & ~words_[i]) != 0) {
        return false;
      }
    }
    return true;
  }
  void add(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] |= other.words_[i];
    }
  }
  void remove(const Bits& other) {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      words_[i] &= ~other.words_[i];
    }
  }
  bool operator==(const Bits& other) const { return words_ == other.words_; }
  bool operator<(const Bits& other) const { return words_ < other.words_; }

 private:
  std::vector<uint64_t> words_;
};

}  // namespace dyncomp::executor
