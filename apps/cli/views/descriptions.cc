#include "apps/cli/views/descriptions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <format>
#include <limits>
#include <map>
#include <utility>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "kernel_templates/config.h"
#include "runtime/base/json_text.h"

namespace dorajit::cli {
namespace {

constexpr std::size_t kMaxJobsShown = 20;

std::string text_in(const Json& object, const char* name) {
  return json_member<std::string>(object, name).value_or("");
}

double number_in(const Json& object, const char* name) {
  return json_member<double>(object, name).value_or(0);
}

bool is_true(const Json& object, const char* name) {
  return json_member<bool>(object, name).value_or(false);
}

std::int64_t count_in(const Json& object, const char* name) {
  return static_cast<std::int64_t>(number_in(object, name));
}

const Json& list_in(const Json& object, const char* name) {
  static const Json none = Json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : none;
}

std::string seconds_text(double seconds) { return duration_text(seconds * 1e9); }

std::string workers_text(const Json& status) {
  Table table({{"worker", Align::kRight}, {"tunes"}, {"device"}});
  for (const Json& worker : list_in(status, "workers")) {
    const std::string problem = text_in(worker, "problem");
    table.add_row({std::to_string(count_in(worker, "pid")), problem.empty() ? "-" : problem,
                   text_in(worker, "device")});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string queue_text(const Json& status) {
  Table table({{"waiting"}, {"clients", Align::kRight}, {"device"}});
  std::size_t shown = 0;
  for (const Json& job : list_in(status, "queue")) {
    if (is_true(job, "running") || shown++ >= kMaxJobsShown) continue;
    table.add_row({text_in(job, "problem"), std::to_string(count_in(job, "waiters")),
                   text_in(job, "device")});
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string recent_text(const Json& status) {
  Table table({{"recent"},
               {"config"},
               {"time", Align::kRight},
               {"over default", Align::kRight},
               {"tuned in", Align::kRight},
               {"age", Align::kRight}});
  for (const Json& one : list_in(status, "recent")) {
    const double median_ns = number_in(one, "median_ns");
    const bool won = median_ns > 0;
    table.add_row({text_in(one, "problem"), won ? text_in(one, "config") : text_in(one, "failure"),
                   won ? duration_text(median_ns) : "",
                   won ? ratio_text(number_in(one, "default_median_ns") / median_ns) : "",
                   seconds_text(number_in(one, "seconds")),
                   age_text(count_in(one, "age_seconds"))});
  }
  return table.empty() ? "" : "\n" + table.text();
}

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

Json to_json(const launch::DeviceId& id, const device::DeviceInfo& info) {
  return {{"id", device_text(id)},
          {"kind", id.kind == kernels::DeviceKind::kCpu ? "cpu" : "cuda"},
          {"ordinal", id.ordinal},
          {"name", info.name},
          {"arch", info.target.arch},
          {"processors", info.traits.processors},
          {"cache_bytes", info.cache_bytes},
          {"memory_bytes", info.memory_bytes},
          {"driver_version", info.driver_version},
          {"fingerprint", info.fingerprint}};
}

Json to_json(const Statistics& statistics) {
  return {{"compilations", statistics.compilations.load()},
          {"artifact_hits", statistics.artifact_hits.load()},
          {"builtin_kernels", statistics.builtin_kernels.load()},
          {"tuned_problems", statistics.tuned_problems.load()},
          {"trials", statistics.trials.load()}};
}

Json describe(cache::TuningStore& store) {
  return {{"location", store.location()},
          {"persistent", store.persistent()},
          {"reason_not_persistent", store.reason_not_persistent()}};
}

std::string where_winners_are(cache::TuningStore& store) {
  if (store.persistent()) return std::format("winners are kept in {}", store.location());
  return std::format("winners are not kept: {}", store.reason_not_persistent());
}

bool check_winners_are_kept(cache::TuningStore& store) {
  if (store.persistent()) return true;
  print_error(StatusCode::kIoError, "the " + where_winners_are(store));
  return false;
}

std::string daemon_text(const Json& status) {
  std::string text = std::format(
      "dorajitd is process {}{}\n{} connected, {} waiting, {} running, {} tuned, {} failed, {} "
      "lost\n",
      count_in(status, "pid"), is_true(status, "draining") ? " and is ending" : "",
      count_text(count_in(status, "clients"), "client"),
      count_text(count_in(status, "jobs_waiting"), "problem"), count_in(status, "jobs_running"),
      count_in(status, "tuned"), count_in(status, "failed"),
      count_text(count_in(status, "workers_lost"), "worker"));
  for (const Json& device : list_in(status, "devices")) {
    text += std::format("{} of tuning on {}\n", seconds_text(number_in(device, "tuning_seconds")),
                        text_in(device, "device"));
  }
  return text + workers_text(status) + queue_text(status) + recent_text(status);
}

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
