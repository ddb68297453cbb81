#include <cstddef>
#include <memory>
#include <utility>

#include "bindings/c/engine_handle.h"
#include "bindings/c/engine_options.h"
#include "bindings/c/error_handle.h"
#include "bindings/c/sized_struct.h"

namespace dorajit::bindings {
namespace {

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
