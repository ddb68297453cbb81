#include "cache/records/trial_validity.h"

#include <chrono>
#include <format>
#include <initializer_list>
#include <string_view>

#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

struct NamedText {
  std::string_view name;
  const std::string& text;
};

std::string fault_of(std::initializer_list<NamedText> texts) {
  for (const auto& [name, text] : texts) {
    if (text.size() > kMaxTextBytes) {
      return std::format("\"{}\" is longer than {} bytes", name, kMaxTextBytes);
    }
    if (!is_printable_line(text)) {
      return std::format("\"{}\" has characters that cannot be printed", name);
    }
  }
  return {};
}

template <class Record>
std::string fault_of_texts(const Record& record) {
  const Environment& environment = record.environment;
  return fault_of({{"device", record.device},
                   {"problem", record.problem},
                   {"driver", environment.driver},
                   {"policy", environment.policy},
                   {"space", environment.space},
                   {"tuner", environment.tuner},
                   {"templates", environment.templates}});
}

std::string fault_of_time(std::int64_t created_unix_s) {
  if (created_unix_s >= 0 && created_unix_s <= kMaxUnixSeconds) return {};
  return std::format("\"created_unix_s\" is not from 0 to {}", kMaxUnixSeconds);
}

}  // namespace

std::string fault_of(const Trial& trial) {
  if (auto fault = fault_of_texts(trial); !fault.empty()) return fault;
  if (auto fault = fault_of({{"host", trial.host}}); !fault.empty()) return fault;
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
  const auto tomorrow = std::chrono::system_clock::now() + std::chrono::days(1);
  return std::chrono::duration_cast<std::chrono::seconds>(tomorrow.time_since_epoch()).count();
}

}  // namespace dorajit::cache
