#include "cache/records/trial_lines.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <expected>
#include <format>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"
#include "runtime/base/json_text.h"
#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

using Json = JsonFields::Json;
template <class T>
using Field = std::expected<T, std::string>;  // or the fault

constexpr const char* kTrialsFormat = "dorajit-trials";
constexpr std::int64_t kTrialsVersion = 1;
constexpr std::size_t kMaxLineBytes = std::size_t{16} << 10;
constexpr const char* kClosing = "end";  // the member that marks the closing line

constexpr std::size_t kTrialFieldCount = 11 + std::size(kEnvironmentTexts);
constexpr std::size_t kComparisonFieldCount = 2;  // additional fields of a trial with a comparison

std::string checksum_text(const Trial& trial) {
  return std::format("{:016x}", static_cast<std::uint64_t>(checksum(trial)));
}

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }

// Nothing if JSON cannot represent the trial.
std::optional<std::string> to_line(const Trial& trial) {
  if (std::isinf(trial.median_ns) || std::isinf(trial.mad_ns)) return std::nullopt;
  if (trial.comparison && !(std::isfinite(trial.comparison->log_ratio) &&
                            std::isfinite(trial.comparison->standard_error))) {
    return std::nullopt;
  }
  Json line = {{"device", trial.device}, {"problem", trial.problem}};
  for (const auto& [name, member] : kEnvironmentTexts) line[name] = trial.environment.*member;
  line["config"] = kernels::to_text(trial.config);
  line["default_config"] = kernels::to_text(trial.default_config);
  line["verdict"] = name(trial.verdict);
  line["median_ns"] = number_or_null(trial.median_ns);
  line["mad_ns"] = number_or_null(trial.mad_ns);
  line["samples"] = trial.samples;
  if (trial.comparison) {
    line["log_ratio"] = trial.comparison->log_ratio;
    line["log_ratio_error"] = trial.comparison->standard_error;
  }
  line["created_unix_s"] = trial.created_unix_s;
  line["host"] = trial.host;
  line["checksum"] = checksum_text(trial);
  try {
    return line.dump();
  } catch (const Json::exception&) {  // text that is not UTF-8
    return std::nullopt;
  }
}

// What orders lines. Its texts and the checksum are made once, not for each comparison.
struct OrderedTrial {
  explicit OrderedTrial(const Trial& ordered)
      : trial(&ordered), config(kernels::to_text(ordered.config)), sum(checksum(ordered)) {}

  [[nodiscard]] auto order() const {
    return std::tie(trial->device, trial->problem, trial->created_unix_s, trial->host, config, sum);
  }

  const Trial* trial;
  std::string config;
  std::int64_t sum;
};

double read_time(JsonFields& fields, const char* name) {
  if (fields.is_null(name)) return std::numeric_limits<double>::quiet_NaN();
  const auto time = json_member<double>(fields.object(), name);
  if (!time || *time < 0) fields.refuse(name, "is neither null nor a time");
  return time.value_or(0);
}

PairedComparison read_comparison(JsonFields& fields) {
  const PairedComparison comparison{.log_ratio = fields.number("log_ratio"),
                                    .standard_error = fields.number("log_ratio_error")};
  if (comparison.standard_error < 0) fields.refuse("log_ratio_error", "is negative");
  return comparison;
}

kernels::Config read_config(JsonFields& fields, const char* name) {
  const auto config = kernels::parse_config(fields.text(name));
  if (!config) fields.refuse(name, "is not a config");
  return config.value_or(kernels::Config{});
}

Field<Trial> read_fields(const Json& line, std::int64_t latest) {
  JsonFields fields(line);
  Trial trial;
  trial.device = fields.text("device");
  trial.problem = fields.text("problem");
  for (const auto& [name, member] : kEnvironmentTexts)
    trial.environment.*member = fields.text(name);
  trial.config = read_config(fields, "config");
  trial.default_config = read_config(fields, "default_config");
  const auto verdict = parse_verdict(fields.text("verdict"));
  trial.median_ns = read_time(fields, "median_ns");
  trial.mad_ns = read_time(fields, "mad_ns");
  trial.samples = static_cast<int>(fields.count("samples", kMaxSamples));
  if (line.contains("log_ratio")) trial.comparison = read_comparison(fields);
  trial.created_unix_s = fields.count("created_unix_s", kMaxUnixSeconds);
  trial.host = fields.text("host");
  const std::string sum = fields.text("checksum");
  if (!fields.fault().empty()) return std::unexpected(fields.fault());
  if (line.size() != kTrialFieldCount + (trial.comparison ? kComparisonFieldCount : 0))
    return std::unexpected("it has unknown fields");
  if (!verdict) return std::unexpected("\"verdict\" is unknown");
  trial.verdict = *verdict;
  if (auto wrong = fault_of(trial); !wrong.empty()) return std::unexpected(std::move(wrong));
  if (sum != checksum_text(trial)) return std::unexpected("its checksum is wrong");
  if (trial.created_unix_s > latest) {
    return std::unexpected("\"created_unix_s\" is in the future: a clock was or is wrong");
  }
  return trial;
}

Field<Json> read_object(std::string_view text) {
  if (text.size() > kMaxLineBytes) {
    return std::unexpected(std::format("it is longer than {} bytes", kMaxLineBytes));
  }
  auto line = parse_json(text);
  if (!line || !line->is_object()) return std::unexpected("it is not a JSON object");
  return *std::move(line);
}

Json closing_line(std::int64_t trials) { return {{kClosing, kTrialsFormat}, {"trials", trials}}; }

// The count in the closing line; nothing for another line.
std::optional<std::int64_t> closing_count(const Json& line) {
  const auto trials = json_member<std::uint64_t>(line, "trials");
  if (line.size() != 2 || json_member<std::string>(line, kClosing) != kTrialsFormat || !trials) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(*trials);
}

Status check_header(std::string_view text) {
  const Json header = read_object(text).value_or(Json());
  const bool is_header = header.contains("format") && header["format"] == kTrialsFormat &&
                         header.contains("version") && header["version"].is_number_integer();
  if (!is_header) {
    return fail(
        StatusCode::kIoError,
        std::format("its first line is not the header of {}; `dorajit export` writes such files",
                    kTrialsFormat));
  }
  const auto version = header["version"].get<std::int64_t>();
  if (version > kTrialsVersion) {
    return fail(StatusCode::kIoError,
                std::format("it has version {} of {}, and this dorajit supports "
                            "up to {}: update dorajit",
                            version, kTrialsFormat, kTrialsVersion));
  }
  if (version < 1) return fail(StatusCode::kIoError, "its version is unknown");
  return {};
}

constexpr const char* kUnclosed = "it has no closing line, so it is incomplete";

// Checks the closing line; empty if it is the last line and its count is right.
std::string damage_of(std::int64_t counted, std::int64_t lines, std::string_view rest) {
  if (counted != lines) {
    return std::format("its closing line counts {} trials, but there are {} lines", counted, lines);
  }
  return rest.empty() ? "" : "it has text after its closing line";
}

}  // namespace

std::vector<const Trial*> each_once_in_order(std::span<const Trial> trials) {
  std::vector<OrderedTrial> ordered(trials.begin(), trials.end());
  std::ranges::stable_sort(ordered, {}, &OrderedTrial::order);
  const auto again = std::ranges::unique(ordered, {}, &OrderedTrial::sum);
  ordered.erase(again.begin(), again.end());
  std::vector<const Trial*> once;
  std::ranges::transform(ordered, std::back_inserter(once), &OrderedTrial::trial);
  return once;
}

TrialText to_lines(std::span<const Trial> trials, const Progress& progress) {
  const std::vector<const Trial*> sorted = each_once_in_order(trials);
  TrialText text;
  text.lines = Json{{"format", kTrialsFormat}, {"version", kTrialsVersion}}.dump() + "\n";
  std::int64_t done = 0;
  for (const Trial* trial : sorted) {
    report(progress, ++done, std::ssize(sorted));
    if (const auto line = to_line(*trial)) {
      text.lines.append(*line).append("\n");
      ++text.trials;
    } else {
      ++text.left_out;
    }
  }
  text.lines.append(closing_line(text.trials).dump()).append("\n");
  return text;
}

Result<ParsedTrials> parse_lines(std::string_view text, const Progress& progress) {
  const std::int64_t in_all = std::ssize(text);
  DORAJIT_TRY(check_header(cut_line(text)));
  const std::int64_t latest = latest_plausible_time();
  ParsedTrials parsed;
  parsed.damage = kUnclosed;
  for (std::int64_t number = 2; !text.empty(); ++number) {
    const Field<Json> line = read_object(cut_line(text));
    report(progress, in_all - std::ssize(text), in_all);
    if (const auto count = line ? closing_count(*line) : std::nullopt) {
      parsed.damage = damage_of(*count, number - 2, text);
      continue;
    }
    Field<Trial> trial =
        line.and_then([&](const Json& object) { return read_fields(object, latest); });
    if (trial) {
      parsed.trials.push_back(*std::move(trial));
      continue;
    }
    if (parsed.bad.size() < kMaxBadLinesNamed) {
      parsed.bad.push_back({.number = number, .reason = std::move(trial).error()});
    }
    ++parsed.bad_count;
  }
  return parsed;
}

}  // namespace dorajit::cache
