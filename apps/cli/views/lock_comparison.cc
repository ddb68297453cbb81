#include "apps/cli/views/lock_comparison.h"

#include <format>
#include <map>
#include <utility>

#include "apps/cli/terminal/text_format.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

using Key = std::pair<std::string, std::string>;  // device and problem
using ByKey = std::map<Key, const cache::LockEntry*>;

constexpr std::size_t kMaxNamed = 20;

ByKey by_key(const LockSide& side) {
  ByKey found;
  for (const cache::LockEntry& entry : side.entries) {
    found.try_emplace({entry.device, entry.problem}, &entry);
  }
  return found;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string named(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace

std::vector<LockMismatch> compare_locks(const LockSide& first, const LockSide& second) {
  const ByKey ours = by_key(first);
  const ByKey theirs = by_key(second);
  std::map<Key, LockMismatch> found;
  const auto add = [&](const Key& key) -> LockMismatch& {
    return found[key] = {.device = key.first,
                         .problem = key.second,
                         .second = second.name,
                         .missing_in = {},
                         .differences = {}};
  };
  for (const auto& [key, entry] : ours) {
    const auto other = theirs.find(key);
    if (other == theirs.end()) {
      add(key).missing_in = second.name;
    } else if (auto differing = differences(*entry, *other->second); !differing.empty()) {
      add(key).differences = std::move(differing);
    }
  }
  for (const auto& [key, entry] : theirs) {
    if (!ours.contains(key)) add(key).missing_in = first.name;
  }
  std::vector<LockMismatch> mismatches;
  for (auto& [key, mismatch] : found) mismatches.push_back(std::move(mismatch));
  return mismatches;
}

std::string mismatches_text(const std::string& first, const std::vector<LockMismatch>& mismatches) {
  std::string text;
  for (std::size_t i = 0; i < mismatches.size() && i < kMaxNamed; ++i) {
    const LockMismatch& one = mismatches[i];
    text += std::format("{} on {}\n", one.problem, one.device);
    if (!one.missing_in.empty()) text += std::format("  not in {}\n", one.missing_in);
    for (const cache::LockDifference& difference : one.differences) {
      text += std::format("  {}: {} in {}, {} in {}\n", difference.field, named(difference.first),
                          first, named(difference.second), one.second);
    }
  }
  if (mismatches.size() > kMaxNamed) {
    text += std::format("and {} more\n", mismatches.size() - kMaxNamed);
  }
  return text;
}

Json to_json(const LockMismatch& mismatch) {
  Json row = {{"device", mismatch.device},
              {"problem", mismatch.problem},
              {"file", mismatch.second},
              {"missing_in", text_or_null(mismatch.missing_in)},
              {"fields", Json::array()}};
  for (const cache::LockDifference& difference : mismatch.differences) {
    row["fields"].push_back({{"field", difference.field},
                             {"first", text_or_null(difference.first)},
                             {"second", text_or_null(difference.second)}});
  }
  return row;
}

Json to_json(const cache::LockEntry& entry) {
  return {{"device", entry.device},
          {"problem", entry.problem},
          {"config", kernels::to_text(entry.config)},
          {"compiler", text_or_null(entry.compiler)},
          {"artifact", text_or_null(entry.artifact)},
          {"code", text_or_null(entry.code)}};
}

}  // namespace dorajit::cli
