#include "cache/records/trial_validity.h"

#include <format>
#include <string_view>

#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

std::string fault_of_text(std::string_view name, const std::string& text) {
  if (text.size() > kMaxTextBytes) {
    return std::format("\"{}\" is longer than {} bytes", name, kMaxTextBytes);
  }
  if (!is_printable_line(text)) {
    return std::format("\"{}\" has characters that cannot be printed", name);
  }
  return {};
}

template <class Record>
std::string fault_of_texts(const Record& record) {
  std::string fault = fault_of_text("device", record.device);
  if (fault.empty()) fault = fault_of_text("problem", record.problem);
  for (const auto& [name, member] : kEnvironmentTexts) {
    if (fault.empty()) fault = fault_of_text(name, record.environment.*member);
  }
  return fault;
}

std::string fault_of_time(std::int64_t created_unix_s) {
  if (created_unix_s >= 0 && created_unix_s <= kMaxUnixSeconds) return {};
  return std::format("\"created_unix_s\" is not from 0 to {}", kMaxUnixSeconds);
}

}  // namespace

std::string fault_of(const Trial& trial) {
  if (auto fault = fault_of_texts(trial); !fault.empty()) return fault;
  if (auto fault = fault_of_text("host", trial.host); !fault.empty()) return fault;
  if (trial.samples < 0 || trial.samples > kMaxSamples) {
    return std::format("\"samples\" is not from 0 to {}", kMaxSamples);
  }
  return fault_of_time(trial.created_unix_s);
}

std::string fault_of(const Winner& winner) {
  if (auto fault = fault_of_texts(winner); !fault.empty()) return fault;
  return fault_of_time(winner.created_unix_s);
}

std::int64_t latest_plausible_time() {
  constexpr std::int64_t kDay = 86400;
  return now_unix_s() + kDay;
}

}  // namespace dorajit::cache
