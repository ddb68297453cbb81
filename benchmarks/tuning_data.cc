// Measures looking up, recording and merging tuning results; prints one JSON document.
//
//     tuning_data FOLDER     an empty folder on the disk to measure; it is not cleaned up
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cache/database/trial_files.h"
#include "cache/database/tuning_store.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/plan_table.h"

namespace {

using dorajit::cache::Trial;
using dorajit::cache::TuningStore;
using dorajit::cache::Winner;
using dorajit::kernels::Config;
using dorajit::launch::Problem;
using Clock = std::chrono::steady_clock;

constexpr int kProblems = 10'000;
constexpr int kLookups = 2'000;
constexpr int kPlanLookups = 20'000'000;
constexpr int kDatabases = 100;
constexpr int kTrialsOfADatabase = 10'000;
constexpr const char* kDevice = "cuda/NVIDIA H200/sm_90/132 SMs/61440 KiB L2/140 GiB";

dorajit::kernels::Variant compose() {
  using enum dorajit::kernels::ElementType;
  return {.operation = &dorajit::kernels::operation("compose"),
          .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}};
}

const std::vector<Config>& space() {
  static const std::vector<Config> configs = dorajit::kernels::config_space(
      compose(), {.kind = dorajit::kernels::DeviceKind::kCuda, .processors = 132}, 8,
      dorajit::kernels::SpaceKind::kSlim);
  return configs;
}

Problem problem(int i) {
  return {.variant = compose(), .vector_width = 8, .key = {i % 16, 64 + 64 * (i / 16)}};
}

// One tuning of a problem: a trial of each config.
std::vector<Trial> tuning(int i, const std::string& host, std::mt19937& random) {
  std::vector<Trial> trials;
  std::uniform_real_distribution<double> time(900, 1100);
  for (const Config& config : space()) {
    trials.push_back({.problem = to_text(problem(i)),
                      .device = kDevice,
                      .environment = {"13.0", "policy", "space", "1", "templates"},
                      .config = config,
                      .default_config = space().front(),
                      .median_ns = time(random),
                      .mad_ns = 5,
                      .samples = 24,
                      .created_unix_s = 1'700'000'000 + i,
                      .host = host});
  }
  return trials;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

// A look-up on the launch path: a plan that was made before.
double plan_lookup_ns() {
  dorajit::launch::PlanTable table;
  std::vector<dorajit::launch::PlanKey> keys;
  for (int i = 0; i < kProblems; ++i) {
    keys.push_back(make_plan_key(problem(i), {}));
    table.insert({.key = keys.back(), .problem = problem(i)});
  }
  std::int64_t found = 0;
  const auto start = Clock::now();
  for (int i = 0; i < kPlanLookups; ++i) {
    // A stride through all keys, so that consecutive look-ups use distant keys.
    const Problem wanted = problem(static_cast<int>(i * 7919LL % kProblems));
    found += table.find(make_plan_key(wanted, {})) != nullptr;
  }
  const double spent = seconds_since(start);
  if (found != kPlanLookups) std::fprintf(stderr, "some plans were not found\n");
  return spent / kPlanLookups * 1e9;
}

nlohmann::json database_lookups(const std::string& folder) {
  std::mt19937 random(1);
  const auto store = TuningStore::open(folder);
  std::vector<Trial> all;
  for (int i = 0; i < kProblems; ++i) {
    std::ranges::move(tuning(i, "host", random), std::back_inserter(all));
  }
  auto start = Clock::now();
  store->merge(all);
  const double filled = seconds_since(start);
  std::vector<double> known;
  std::vector<double> unknown;
  for (int i = 0; i < kLookups; ++i) {
    const auto look_up = [&](int which, std::vector<double>& times, bool expected) {
      const std::string text = to_text(problem(which));
      const auto begin = Clock::now();
      const bool found = store->find_winner(kDevice, text).has_value();
      times.push_back(seconds_since(begin) * 1e6);
      if (found != expected) std::fprintf(stderr, "%s: a wrong answer\n", text.c_str());
    };
    look_up(static_cast<int>(i * 7919LL % kProblems), known, true);
    look_up(kProblems + i, unknown, false);
  }
  start = Clock::now();
  const auto neighbours = store->winners_of_variant(to_text(problem(0).variant));
  const double listed = seconds_since(start);
  const int more = 50;
  start = Clock::now();
  for (int i = 0; i < more; ++i) {
    const auto trials = tuning(kProblems + i, "host", random);
    store->record(trials, {.problem = trials[0].problem,
                           .device = kDevice,
                           .environment = trials[0].environment,
                           .config = trials[0].config,
                           .default_config = trials[0].config,
                           .median_ns = 1,
                           .default_median_ns = 1});
  }
  return {{"problems", kProblems},
          {"trials", all.size()},
          {"fill_s", filled},
          {"known_us", {{"median", quantile(known, 0.5)}, {"p99", quantile(known, 0.99)}}},
          {"unknown_us", {{"median", quantile(unknown, 0.5)}, {"p99", quantile(unknown, 0.99)}}},
          {"winners_of_variant", neighbours.size()},
          {"winners_of_variant_ms", listed * 1e3},
          {"record_ms", seconds_since(start) / more * 1e3}};
}

// Databases of several machines; half of the trials of each are of problems that all have.
nlohmann::json merges(const std::string& folder) {
  std::mt19937 random(2);
  const int problems = kTrialsOfADatabase / static_cast<int>(space().size());
  std::vector<std::string> files;
  double written = 0;
  for (int i = 0; i < kDatabases; ++i) {
    std::vector<Trial> trials;
    for (int p = 0; p < problems; ++p) {
      const int which = p % 2 == 0 ? p : 1000 + i * problems + p;
      std::ranges::move(tuning(which, "host-" + std::to_string(i), random),
                        std::back_inserter(trials));
    }
    files.push_back(folder + "/" + std::to_string(i) + ".jsonl");
    const auto start = Clock::now();
    if (!dorajit::cache::write_trial_file(files.back(), trials)) std::abort();
    written += seconds_since(start);
  }
  const auto store = TuningStore::open(folder);
  double read = 0;
  double merged = 0;
  std::int64_t added = 0;
  for (const std::string& path : files) {
    auto start = Clock::now();
    const auto file = dorajit::cache::read_trial_file(path);
    read += seconds_since(start);
    if (!file || !file->is_complete()) std::abort();
    start = Clock::now();
    added += store->import_trials(file->trials)->added;
    merged += seconds_since(start);
  }
  return {{"databases", kDatabases}, {"trials_added", added}, {"winners", store->winners().size()},
          {"write_text_s", written}, {"read_text_s", read},   {"merge_s", merged}};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: tuning_data FOLDER\n");
    return 2;
  }
  const std::string folder = arguments[1];
  nlohmann::json report;
  report["plan_lookup_ns"] = plan_lookup_ns();
  std::filesystem::create_directory(folder + "/lookups");
  std::filesystem::create_directory(folder + "/merges");
  report["database"] = database_lookups(folder + "/lookups");
  report["merge"] = merges(folder + "/merges");
  std::printf("%s\n", report.dump(2).c_str());
  return 0;
}
