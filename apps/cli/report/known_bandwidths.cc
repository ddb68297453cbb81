#include "apps/cli/report/known_bandwidths.h"

#include <algorithm>
#include <iterator>

namespace dorajit::cli::report {
namespace {

// Peak rates from the makers' data sheets. A name that contains another one comes before it.
constexpr KnownBandwidth kKnown[] = {
    {.model = "GB200", .bytes_per_ns = 8000},
    {.model = "B200", .bytes_per_ns = 8000},
    {.model = "GH200 144G", .bytes_per_ns = 4900},
    {.model = "GH200", .bytes_per_ns = 4000},
    {.model = "H200", .bytes_per_ns = 4800},
    {.model = "H100 PCIe", .bytes_per_ns = 2000},
    {.model = "H100 NVL", .bytes_per_ns = 3900},
    {.model = "H100", .bytes_per_ns = 3350},
    {.model = "A100-SXM4-80GB", .bytes_per_ns = 2039},
    {.model = "A100 80GB PCIe", .bytes_per_ns = 1935},
    {.model = "A100", .bytes_per_ns = 1555},
    {.model = "L40S", .bytes_per_ns = 864},
    {.model = "L40", .bytes_per_ns = 864},
    {.model = "L4", .bytes_per_ns = 300},
    {.model = "A40", .bytes_per_ns = 696},
    {.model = "A10G", .bytes_per_ns = 600},
    {.model = "A10", .bytes_per_ns = 600},
    {.model = "RTX 5090", .bytes_per_ns = 1792},
    {.model = "RTX 4090", .bytes_per_ns = 1008},
    {.model = "RTX 3090", .bytes_per_ns = 936},
    {.model = "V100", .bytes_per_ns = 900},
    {.model = "T4", .bytes_per_ns = 320},
};

// Whether the text has the model as words of its own: no A10 in A100.
bool names_model(std::string_view text, std::string_view model) {
  const auto is_part_of_word = [&](std::size_t at) {
    if (at >= text.size()) return false;
    const char letter = text[at];
    return (letter >= '0' && letter <= '9') || (letter >= 'A' && letter <= 'Z') ||
           (letter >= 'a' && letter <= 'z');
  };
  for (std::size_t at = text.find(model); at != text.npos; at = text.find(model, at + 1)) {
    if (!is_part_of_word(at + model.size()) && (at == 0 || !is_part_of_word(at - 1))) return true;
  }
  return false;
}

}  // namespace

std::optional<KnownBandwidth> known_bandwidth(std::string_view fingerprint) {
  // A slice of a GPU has a slice of its bandwidth.
  if (!fingerprint.starts_with("cuda/") || fingerprint.contains("MIG")) return std::nullopt;
  const auto* found = std::ranges::find_if(
      kKnown, [&](const KnownBandwidth& one) { return names_model(fingerprint, one.model); });
  if (found == std::end(kKnown)) return std::nullopt;
  return *found;
}

}  // namespace dorajit::cli::report
