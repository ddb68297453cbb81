#include "cache/records/device_models.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

namespace dorajit::cache {
namespace {

constexpr std::string_view kUnit = " GiB";

struct Parts {
  std::string_view model;  // with the slash at its end
  int gib;
};

// Nothing for a fingerprint without memory, as of a CPU.
std::optional<Parts> parts_of(std::string_view fingerprint) {
  if (!fingerprint.ends_with(kUnit)) return std::nullopt;
  const std::size_t begin = fingerprint.rfind('/') + 1;
  const std::string_view number =
      fingerprint.substr(begin, fingerprint.size() - kUnit.size() - begin);
  int gib = 0;
  const auto [end, error] = std::from_chars(number.begin(), number.end(), gib);
  if (begin == 0 || error != std::errc() || end != number.end() || gib < 0) return std::nullopt;
  return Parts{.model = fingerprint.substr(0, begin), .gib = gib};
}

}  // namespace

bool is_same_model(std::string_view one, std::string_view other) {
  if (one == other) return true;
  const auto first = parts_of(one);
  const auto second = parts_of(other);
  return first && second && first->model == second->model &&
         std::abs(first->gib - second->gib) <= std::max(first->gib, second->gib) / 8;
}

int memory_apart(std::string_view one, std::string_view other) {
  const auto first = parts_of(one);
  const auto second = parts_of(other);
  return first && second ? std::abs(first->gib - second->gib) : 0;
}

std::pair<std::string, std::string> range_of_model(std::string_view fingerprint) {
  const auto parts = parts_of(fingerprint);
  if (!parts) return {std::string(fingerprint), std::string(fingerprint)};
  // ':' is the character after '9'.
  return {std::string(parts->model), std::string(parts->model) + ':'};
}

}  // namespace dorajit::cache
