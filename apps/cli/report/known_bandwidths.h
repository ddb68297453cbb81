// Memory bandwidths of devices, from their makers' data sheets.
#pragma once

#include <optional>
#include <string_view>

namespace dorajit::cli::report {

struct KnownBandwidth {
  std::string_view model;   // a part of the device's name
  double bytes_per_ns = 0;  // which is GB/s
};

// Of the first model that the device's fingerprint names.
std::optional<KnownBandwidth> known_bandwidth(std::string_view fingerprint);

}  // namespace dorajit::cli::report
