#include "cache/trial_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <expected>
#include <format>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "cache/trial_validity.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cache {
namespace {

using Json = nlohmann::ordered_json;
template <class T>
using Field = std::expected<T, std::string>;  // or what is wrong with it

constexpr const char* kFormatName = "dorajit-trials";
constexpr std::int64_t kFormatVersion = 2;
constexpr std::size_t kMostLineBytes = std::size_t{16} << 10;
constexpr const char* kClosing = "end";  // the member that makes a line the closing one

struct TextMember {
  const char* name;
  std::string Environment::* member;
};
constexpr TextMember kEnvironment[] = {{"driver", &Environment::driver},
                                       {"policy", &Environment::policy},
                                       {"space", &Environment::space},
                                       {"tuner", &Environment::tuner},
                                       {"templates", &Environment::templates}};
constexpr std::size_t kFieldCount = 11 + std::size(kEnvironment);
constexpr std::size_t kDuelFieldCount = 2;  // which a trial with a duel has besides

std::string checksum_text(const Trial& trial) {
  return std::format("{:016x}", static_cast<std::uint64_t>(checksum(trial)));
}

Json number_or_null(double value) { return std::isnan(value) ? Json() : Json(value); }

// Nothing where JSON cannot say it.
std::optional<std::string> to_line(const Trial& trial) {
  if (std::isinf(trial.median_ns) || std::isinf(trial.mad_ns)) return std::nullopt;
  if (trial.duel &&
      !(std::isfinite(trial.duel->log_ratio) && std::isfinite(trial.duel->standard_error))) {
    return std::nullopt;
  }
  Json line = {{"device", trial.device}, {"problem", trial.problem}};
  for (const auto& [name, member] : kEnvironment) line[name] = trial.environment.*member;
  line["config"] = kernels::to_text(trial.config);
  line["default_config"] =
      trial.default_config ? Json(kernels::to_text(*trial.default_config)) : Json();
  line["verdict"] = name(trial.verdict);
  line["median_ns"] = number_or_null(trial.median_ns);
  line["mad_ns"] = number_or_null(trial.mad_ns);
  line["samples"] = trial.samples;
  if (trial.duel) {
    line["log_ratio"] = trial.duel->log_ratio;
    line["log_ratio_error"] = trial.duel->standard_error;
  }
  line["created_unix_s"] = trial.created_unix_s;
  line["host"] = trial.host;
  line["checksum"] = checksum_text(trial);
  try {
    return line.dump();
  } catch (const Json::exception&) {  // a text that is no UTF-8
    return std::nullopt;
  }
}

auto order_of_lines(const Trial* trial) {
  return std::tuple<const std::string&, const std::string&, std::int64_t, const std::string&,
                    std::string, std::int64_t>(trial->device, trial->problem, trial->created_unix_s,
                                               trial->host, kernels::to_text(trial->config),
                                               checksum(*trial));
}

Field<std::string> text_field(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_string()) {
    return std::unexpected(std::format("\"{}\" is no text", name));
  }
  return found->get<std::string>();
}

Field<std::int64_t> count_field(const Json& line, const char* name, std::int64_t most) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number_unsigned() ||
      found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    return std::unexpected(std::format("\"{}\" is no integer from 0 to {}", name, most));
  }
  return found->get<std::int64_t>();
}

Field<double> time_field(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found != line.end() && found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (found == line.end() || !found->is_number() || found->get<double>() < 0) {
    return std::unexpected(std::format("\"{}\" is neither null nor a time", name));
  }
  return found->get<double>();
}

Field<double> number_field(const Json& line, const char* name) {
  const auto found = line.find(name);
  if (found == line.end() || !found->is_number()) {
    return std::unexpected(std::format("\"{}\" is no number", name));
  }
  return found->get<double>();
}

Field<Duel> duel_fields(const Json& line) {
  return number_field(line, "log_ratio").and_then([&](double log_ratio) {
    return number_field(line, "log_ratio_error").and_then([&](double error) -> Field<Duel> {
      if (error < 0) return std::unexpected("\"log_ratio_error\" is negative");
      return Duel{.log_ratio = log_ratio, .standard_error = error};
    });
  });
}

Field<kernels::Config> config_field(const Json& line, const char* name) {
  return text_field(line, name).and_then([&](const std::string& text) -> Field<kernels::Config> {
    if (const auto config = kernels::parse_config(text)) return *config;
    return std::unexpected(std::format("\"{}\" is no config", name));
  });
}

Field<Trial> read_fields(const Json& line, std::int64_t latest) {
  Trial trial;
  std::string fault;
  const auto take = [&]<class T>(auto& to, Field<T> field) {
    if (field) {
      to = static_cast<std::remove_cvref_t<decltype(to)>>(*std::move(field));
    } else if (fault.empty()) {
      fault = std::move(field).error();
    }
  };
  std::string verdict;
  std::string sum;
  take(trial.device, text_field(line, "device"));
  take(trial.problem, text_field(line, "problem"));
  for (const auto& [name, member] : kEnvironment) {
    take(trial.environment.*member, text_field(line, name));
  }
  take(trial.config, config_field(line, "config"));
  if (const auto found = line.find("default_config"); found == line.end() || !found->is_null()) {
    take(trial.default_config, config_field(line, "default_config"));
  }
  take(verdict, text_field(line, "verdict"));
  take(trial.median_ns, time_field(line, "median_ns"));
  take(trial.mad_ns, time_field(line, "mad_ns"));
  take(trial.samples, count_field(line, "samples", kMostSamples));
  if (line.contains("log_ratio")) take(trial.duel, duel_fields(line));
  take(trial.created_unix_s, count_field(line, "created_unix_s", kMostUnixSeconds));
  take(trial.host, text_field(line, "host"));
  take(sum, text_field(line, "checksum"));
  if (!fault.empty()) return std::unexpected(std::move(fault));
  if (line.size() != kFieldCount + (trial.duel ? kDuelFieldCount : 0))
    return std::unexpected("it has fields that are not known");
  const auto known = parse_verdict(verdict);
  if (!known) return std::unexpected("\"verdict\" is not known");
  trial.verdict = *known;
  if (auto wrong = fault_of(trial); !wrong.empty()) return std::unexpected(std::move(wrong));
  if (sum != checksum_text(trial)) return std::unexpected("its checksum is wrong");
  if (trial.created_unix_s > latest) {
    return std::unexpected("\"created_unix_s\" is in the future: a clock was or is wrong");
  }
  return trial;
}

Field<Json> read_object(std::string_view text) {
  if (text.size() > kMostLineBytes) {
    return std::unexpected(std::format("it is longer than {} bytes", kMostLineBytes));
  }
  Json line = Json::parse(text, nullptr, false);
  if (!line.is_object()) return std::unexpected("it is no JSON object");
  return line;
}

Json closing_line(std::int64_t trials) { return {{kClosing, kFormatName}, {"trials", trials}}; }

// What the closing line, if it is one, counts.
std::optional<std::int64_t> closing_count(const Json& line) {
  const auto end = line.find(kClosing);
  const auto trials = line.find("trials");
  if (line.size() != 2 || end == line.end() || *end != kFormatName || trials == line.end() ||
      !trials->is_number_unsigned()) {
    return std::nullopt;
  }
  return trials->get<std::int64_t>();
}

Status check_header(std::string_view text) {
  const Json header = text.size() <= kMostLineBytes ? Json::parse(text, nullptr, false) : Json();
  const bool is_header = header.is_object() && header.contains("format") &&
                         header["format"] == kFormatName && header.contains("version") &&
                         header["version"].is_number_integer();
  if (!is_header) {
    return fail(StatusCode::kIoError,
                std::format("its first line is not that of {}; `dorajit export` writes such files",
                            kFormatName));
  }
  const auto version = header["version"].get<std::int64_t>();
  if (version > kFormatVersion) {
    return fail(StatusCode::kIoError, std::format("it has version {} of {}, and this dorajit reads "
                                                  "up to {}: update dorajit",
                                                  version, kFormatName, kFormatVersion));
  }
  if (version < 1) return fail(StatusCode::kIoError, "its version is not known");
  return {};
}

// Cuts the first line off `text`.
std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

constexpr const char* kUnclosed =
    "it has no closing line, so it was cut, or exported by a dorajit that wrote none";

// By its closing line; empty: that stands at the end and counts the lines before it.
std::string damage_of(std::int64_t counted, std::int64_t lines, std::string_view rest) {
  if (counted != lines) {
    return std::format("its closing line counts {} trials, and {} lines are there", counted, lines);
  }
  return rest.empty() ? "" : "it goes on after its closing line";
}

}  // namespace

std::vector<const Trial*> each_once_in_order(std::span<const Trial> trials) {
  std::vector<const Trial*> sorted;
  std::set<std::int64_t> known;
  for (const Trial& trial : trials) {
    if (known.insert(checksum(trial)).second) sorted.push_back(&trial);
  }
  std::ranges::sort(sorted, {}, order_of_lines);
  return sorted;
}

TrialText to_lines(std::span<const Trial> trials, const Progress& progress) {
  const std::vector<const Trial*> sorted = each_once_in_order(trials);
  TrialText text;
  text.lines = Json{{"format", kFormatName}, {"version", kFormatVersion}}.dump() + "\n";
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
  DORAJIT_TRY(check_header(next_line(text)));
  const std::int64_t latest = latest_plausible_time();
  ParsedTrials parsed;
  parsed.damage = kUnclosed;
  for (std::int64_t number = 2; !text.empty(); ++number) {
    const Field<Json> line = read_object(next_line(text));
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
    if (parsed.bad.size() < kMostBadLinesNamed) {
      parsed.bad.push_back({.number = number, .reason = std::move(trial).error()});
    }
    ++parsed.bad_count;
  }
  return parsed;
}

}  // namespace dorajit::cache
