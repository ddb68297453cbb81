#include "apps/cli/views/trials_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <format>
#include <limits>
#include <map>
#include <utility>

#include "apps/cli/terminal/table.h"
#include "kernel_templates/config.h"

namespace dorajit::cli {
namespace {

// Speedup over the default config; 0 where one of them was not measured.
double speedup_of(const cache::Trial& trial, const std::vector<cache::Trial>& trials,
                  const cache::Winner& winner) {
  if (!was_measured(trial)) return 0;
  // The default's trial of the same run, since only times of one run are comparable.
  const auto standard = std::ranges::find(trials, winner.default_config, &cache::Trial::config);
  const double default_ns = standard != trials.end() && was_measured(*standard)
                                ? standard->median_ns
                                : winner.default_median_ns;
  return default_ns / trial.median_ns;
}

std::vector<cache::Trial> fastest_first(std::span<const cache::Trial> trials) {
  std::vector<cache::Trial> sorted(trials.begin(), trials.end());
  std::ranges::stable_sort(sorted, {}, [](const cache::Trial& trial) {
    return was_measured(trial) ? trial.median_ns : std::numeric_limits<double>::infinity();
  });
  return sorted;
}

constexpr std::size_t kMaxNamed = 20;

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string named(const std::string& text) { return text.empty() ? "none" : text; }

}  // namespace

bool was_measured(const cache::Trial& trial) {
  return trial.samples > 0 && std::isfinite(trial.median_ns) && trial.median_ns > 0;
}

std::vector<cache::Trial> trials_of(const cache::Winner& winner, cache::TuningStore& store) {
  std::vector<cache::Trial> trials = store.trials(winner.device, winner.problem);
  std::erase_if(trials, [&](const cache::Trial& trial) {
    return trial.created_unix_s != winner.created_unix_s || trial.environment != winner.environment;
  });
  return trials;
}

std::string trials_text(std::span<const cache::Trial> trials, const cache::Winner& winner) {
  Table table({{"config"},
               {"median", Align::kRight},
               {"MAD", Align::kRight},
               {"samples", Align::kRight},
               {"over default", Align::kRight},
               {"verdict"},
               {""}});
  const auto sorted = fastest_first(trials);
  for (const cache::Trial& trial : sorted) {
    const bool measured = was_measured(trial);
    std::string role;
    if (trial.config == winner.default_config) role = "default";
    if (trial.config == winner.config) role += role.empty() ? "winner" : ", winner";
    table.add_row({to_text(trial.config), measured ? duration_text(trial.median_ns) : "-",
                   measured ? duration_text(trial.mad_ns) : "-", std::to_string(trial.samples),
                   ratio_text(speedup_of(trial, sorted, winner)), std::string(name(trial.verdict)),
                   role});
  }
  return table.text();
}

Json trials_json(std::span<const cache::Trial> trials, const cache::Winner& winner) {
  Json rows = Json::array();
  const auto sorted = fastest_first(trials);
  for (const cache::Trial& trial : sorted) {
    Json row = {{"config", to_text(trial.config)},
                {"verdict", name(trial.verdict)},
                {"median_ns", nullptr},
                {"mad_ns", nullptr},
                {"samples", trial.samples},
                {"speedup_over_default", nullptr},
                {"created_unix_s", trial.created_unix_s},
                {"host", trial.host}};
    if (was_measured(trial)) {
      row["median_ns"] = trial.median_ns;
      row["mad_ns"] = trial.mad_ns;
      row["speedup_over_default"] = speedup_of(trial, sorted, winner);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::int64_t age_of(const cache::Winner& winner) {
  return cache::now_unix_s() - winner.created_unix_s;
}

Json to_json(const cache::Winner& winner) {
  Json environment;
  for (const auto& [name, member] : cache::kEnvironmentTexts) {
    environment[name] = winner.environment.*member;
  }
  return {{"problem", winner.problem},
          {"device", winner.device},
          {"config", to_text(winner.config)},
          {"median_ns", winner.median_ns},
          {"default_config", to_text(winner.default_config)},
          {"default_median_ns", winner.default_median_ns},
          {"speedup_over_default", winner.default_median_ns / winner.median_ns},
          {"created_unix_s", winner.created_unix_s},
          {"environment", std::move(environment)}};
}

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
