#include "apps/cli/views/pin_comparison.h"

#include <array>
#include <cstddef>
#include <format>
#include <map>
#include <utility>

#include "apps/cli/terminal/text_format.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

constexpr std::size_t kMaxNamed = 20;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string named(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace

std::vector<PinMismatch> compare_pins(const PinSide& first, const PinSide& second) {
  using Key = std::pair<std::string, std::string>;  // device and problem
  std::map<Key, std::array<const cache::Pin*, 2>> found;
  for (std::size_t i = 0; const PinSide* side : {&first, &second}) {
    for (const cache::Pin& entry : side->entries) {
      const cache::Pin*& known = found[{entry.device, entry.problem}][i];
      if (known == nullptr) known = &entry;
    }
    ++i;
  }
  std::vector<PinMismatch> mismatches;
  for (const auto& [key, entries] : found) {
    const auto [ours, theirs] = entries;
    PinMismatch one{.device = key.first, .problem = key.second, .second = second.name};
    if (ours != nullptr && theirs != nullptr) {
      one.differences = differences(*ours, *theirs);
      if (one.differences.empty()) continue;
    } else {
      one.missing_in = ours == nullptr ? first.name : second.name;
    }
    mismatches.push_back(std::move(one));
  }
  return mismatches;
}

std::string mismatches_text(const std::string& first, const std::vector<PinMismatch>& mismatches) {
  std::string text;
  for (std::size_t i = 0; i < mismatches.size() && i < kMaxNamed; ++i) {
    const PinMismatch& one = mismatches[i];
    text += std::format("{} on {}\n", one.problem, one.device);
    if (!one.missing_in.empty()) text += std::format("  not in {}\n", one.missing_in);
    for (const cache::PinDifference& difference : one.differences) {
      text += std::format("  {}: {} in {}, {} in {}\n", difference.field, named(difference.first),
                          first, named(difference.second), one.second);
    }
  }
  if (mismatches.size() > kMaxNamed) {
    text += std::format("and {} more\n", mismatches.size() - kMaxNamed);
  }
  return text;
}

Json to_json(const PinMismatch& mismatch) {
  Json row = {{"device", mismatch.device},
              {"problem", mismatch.problem},
              {"file", mismatch.second},
              {"missing_in", text_or_null(mismatch.missing_in)},
              {"fields", Json::array()}};
  for (const cache::PinDifference& difference : mismatch.differences) {
    row["fields"].push_back({{"field", difference.field},
                             {"first", text_or_null(difference.first)},
                             {"second", text_or_null(difference.second)}});
  }
  return row;
}

Json to_json(const cache::Pin& entry) {
  return {{"device", entry.device},
          {"problem", entry.problem},
          {"config", kernels::to_text(entry.config)},
          {"compiler", text_or_null(entry.compiler)},
          {"artifact", text_or_null(entry.artifact)},
          {"code", text_or_null(entry.code)}};
}

}  // namespace dorajit::cli
