// What the memory of devices can do, as their makers say.
#pragma once

#include <optional>
#include <string_view>

namespace dorajit::cli::report {

struct KnownBandwidth {
  std::string_view model;   // as it stands in the device's name
  double bytes_per_ns = 0;  // which is GB/s
};

// Of the first model that the device's fingerprint names.
std::optional<KnownBandwidth> known_bandwidth(std::string_view fingerprint);

}  // namespace dorajit::cli::report
