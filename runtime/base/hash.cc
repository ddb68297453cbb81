#include "runtime/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <format>

namespace dorajit {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  return std::format("{:016x}{:016x}", static_cast<std::uint64_t>(hash.high64),
                     static_cast<std::uint64_t>(hash.low64));
}

}  // namespace

std::string hash_hex(std::string_view bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::uint64_t hash64(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Hasher::State {
  XXH3_state_t xxh;

  void append(char tag, std::string_view bytes) {
    const auto size = static_cast<std::uint64_t>(bytes.size());
    XXH3_128bits_update(&xxh, &tag, 1);
    XXH3_128bits_update(&xxh, &size, sizeof size);
    XXH3_128bits_update(&xxh, bytes.data(), bytes.size());
  }
};

Hasher::Hasher(std::string_view domain) : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh);
  state_->append('d', domain);
}

Hasher::~Hasher() = default;

Hasher& Hasher::add(std::string_view name, std::string_view value) {
  state_->append('n', name);
  state_->append('s', value);
  return *this;
}

Hasher& Hasher::add(std::string_view name, std::int64_t value) {
  state_->append('n', name);
  state_->append('i', {reinterpret_cast<const char*>(&value), sizeof value});
  return *this;
}

std::string Hasher::digest() const { return to_hex(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace dorajit
