#include "bindings/c/engine_handle.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <format>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "bindings/c/error_handle.h"

namespace dorajit::bindings {
namespace {

constexpr std::string_view kCreate = "engine_create";
// Size of the first version of the struct; no valid caller passes less.
constexpr std::size_t kSmallestOptions = 40;
static_assert(offsetof(dorajit_engine_options, struct_size) == 0);
static_assert(offsetof(dorajit_engine_options, cache_dir) == 8);
static_assert(offsetof(dorajit_engine_options, tune_policy) == 16);
static_assert(offsetof(dorajit_engine_options, tune_seconds) == 24);
static_assert(offsetof(dorajit_engine_options, scratch_bytes) == 32);
static_assert(offsetof(dorajit_engine_options, trust_device_pointers) == kSmallestOptions);
static_assert(offsetof(dorajit_engine_options, cpu_threads) == 48);

std::unexpected<Error> refuse(std::string_view field, std::string_view what) {
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: `options.{}` {}", kCreate, field, what));
}

Status apply_tune_policy(std::int32_t policy, Settings& settings) {
  using Known = std::pair<std::int32_t, TunePolicy>;
  constexpr Known kPolicies[] = {{DORAJIT_TUNE_FIRST_USE, TunePolicy::kFirstUse},
                                 {DORAJIT_TUNE_OFF, TunePolicy::kOff},
                                 {DORAJIT_TUNE_DAEMON, TunePolicy::kDaemon},
                                 {DORAJIT_TUNE_AUTOMATIC, TunePolicy::kAutomatic}};
  if (policy == DORAJIT_TUNE_FROM_ENVIRONMENT) return {};
  const auto* const found = std::ranges::find(kPolicies, policy, &Known::first);
  if (found == std::end(kPolicies)) {
    return refuse("tune_policy",
                  std::format("is {}; set it to DORAJIT_TUNE_FROM_ENVIRONMENT (0), "
                              "DORAJIT_TUNE_FIRST_USE (1), DORAJIT_TUNE_OFF (2), "
                              "DORAJIT_TUNE_DAEMON (3) or DORAJIT_TUNE_AUTOMATIC (4)",
                              policy));
  }
  settings.tune_policy = found->second;
  return {};
}

Status apply(const dorajit_engine_options& options, Settings& settings) {
  DORAJIT_TRY(apply_tune_policy(options.tune_policy, settings));
  if (options.cache_dir != nullptr) {
    const std::string_view directory = options.cache_dir;
    if (!directory.empty() && !directory.starts_with('/')) {
      return refuse("cache_dir", std::format("is \"{}\"; give an absolute path, or \"\" to store "
                                             "nothing on disk",
                                             directory));
    }
    settings.cache_dir = directory;
  }
  if (!(options.tune_seconds >= 0 && options.tune_seconds <= kMaxTuneSeconds)) {
    return refuse("tune_seconds", std::format("is {}; give seconds up to a day, or 0 for the "
                                              "environment's",
                                              options.tune_seconds));
  }
  if (options.tune_seconds > 0) settings.tune_seconds = options.tune_seconds;
  if (options.scratch_bytes < 0) {
    return refuse("scratch_bytes", std::format("is {}; give a number of bytes, or 0 for the "
                                               "environment's",
                                               options.scratch_bytes));
  }
  if (options.scratch_bytes > 0) settings.scratch_bytes = options.scratch_bytes;
  if (options.trust_device_pointers != 0 && options.trust_device_pointers != 1) {
    return refuse("trust_device_pointers",
                  std::format("is {}; give 0 or 1", options.trust_device_pointers));
  }
  settings.trust_device_pointers = options.trust_device_pointers == 1;
  if (options.cpu_threads < 0 || options.cpu_threads > kMaxCpuThreads) {
    return refuse("cpu_threads",
                  std::format("is {}; give a number of threads up to {}, or 0 for all processors",
                              options.cpu_threads, kMaxCpuThreads));
  }
  settings.cpu_threads = static_cast<int>(options.cpu_threads);
  return {};
}

constexpr std::size_t kSmallestStatistics = 56;
static_assert(offsetof(dorajit_statistics, launches) == 8);
static_assert(offsetof(dorajit_statistics, compilations) == 16);
static_assert(offsetof(dorajit_statistics, artifact_hits) == 24);
static_assert(offsetof(dorajit_statistics, builtin_kernels) == 32);
static_assert(offsetof(dorajit_statistics, tuned_problems) == 40);
static_assert(offsetof(dorajit_statistics, trials) == 48);
static_assert(offsetof(dorajit_statistics, renewed_plans) == kSmallestStatistics);
static_assert(sizeof(dorajit_statistics) >= kSmallestStatistics);

Status create(const dorajit_engine_options* options, dorajit_engine** engine) {
  DORAJIT_TRY(require(engine, "engine_create", "engine", "pass the address of a dorajit_engine*"));
  *engine = nullptr;
  DORAJIT_ASSIGN(const Settings settings, settings_from_options(options));
  DORAJIT_ASSIGN(autotune::EngineParts parts, autotune::make_application_engine(settings));
  *engine = std::make_unique<dorajit_engine>(settings, std::move(parts)).release();
  return {};
}

Status read_statistics(const dorajit_engine* engine, dorajit_statistics* statistics) {
  constexpr std::string_view kFunction = "engine_statistics";
  DORAJIT_TRY(require(engine, kFunction, "engine", "create one with dorajit_engine_create"));
  DORAJIT_TRY(
      require(statistics, kFunction, "statistics", "pass the address of a dorajit_statistics"));
  DORAJIT_TRY(check_struct_size(kFunction, "statistics", "dorajit_statistics",
                                statistics->struct_size, kSmallestStatistics));
  const Statistics& counts = engine->statistics();
  const dorajit_statistics known{.struct_size = sizeof known,
                                 .launches = counts.launches.load(),
                                 .compilations = counts.compilations.load(),
                                 .artifact_hits = counts.artifact_hits.load(),
                                 .builtin_kernels = counts.builtin_kernels.load(),
                                 .tuned_problems = counts.tuned_problems.load(),
                                 .trials = counts.trials.load(),
                                 .renewed_plans = counts.renewed_plans.load()};
  copy_sized(known, statistics);
  return {};
}

}  // namespace

Result<Settings> settings_from_options(const dorajit_engine_options* options) {
  DORAJIT_ASSIGN(Settings settings, Settings::from_environment());
  if (options == nullptr) return settings;
  DORAJIT_TRY(check_struct_size(kCreate, "options", "dorajit_engine_options", options->struct_size,
                                kSmallestOptions));
  DORAJIT_TRY(check_unknown_fields(
      kCreate, "options",
      std::as_bytes(std::span(reinterpret_cast<const std::byte*>(options), options->struct_size)),
      sizeof(dorajit_engine_options)));
  // Fields that a caller of an earlier version does not have are zero.
  dorajit_engine_options known{};
  std::memcpy(&known, options, std::min(options->struct_size, sizeof known));
  DORAJIT_TRY(apply(known, settings));
  return settings;
}

}  // namespace dorajit::bindings

dorajit::Result<dorajit::Engine*> dorajit_engine::renew() {
  DORAJIT_ASSIGN(dorajit::autotune::EngineParts parts,
                 dorajit::autotune::make_application_engine(settings_));
  return parts_.renew(std::move(parts)).engine.get();
}

dorajit_status dorajit_engine_create(const dorajit_engine_options* options, dorajit_engine** engine,
                                     dorajit_error** error) {
  return dorajit::bindings::guarded(error,
                                    [&] { return dorajit::bindings::create(options, engine); });
}

void dorajit_engine_destroy(dorajit_engine* engine) { delete engine; }

dorajit_status dorajit_engine_statistics(const dorajit_engine* engine,
                                         dorajit_statistics* statistics, dorajit_error** error) {
  return dorajit::bindings::guarded(
      error, [&] { return dorajit::bindings::read_statistics(engine, statistics); });
}
