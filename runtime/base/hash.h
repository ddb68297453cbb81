// Keys over typed, delimited fields: two different sequences of fields never form the same input.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dorajit {

// 128 bits, printed as 32 lower-case hexadecimal digits.
std::string hash_hex(std::string_view bytes);

// 64 bits of the same function, as a checksum of a single record.
std::uint64_t hash64(std::string_view bytes);

class Hasher {
 public:
  // `domain` separates keys of different kinds.
  explicit Hasher(std::string_view domain);
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::string_view name, std::string_view value);
  Hasher& add(std::string_view name, std::int64_t value);

  // 32 lower-case hexadecimal digits over the fields added so far.
  [[nodiscard]] std::string digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dorajit
