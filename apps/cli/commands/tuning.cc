#include "apps/cli/commands/tuning.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <format>
#include <memory>

#include "apps/cli/terminal/number_range.h"
#include "autotune/sources/tuning_config_source.h"

namespace dorajit::cli {

void add_seconds_option(CLI::App& app, std::optional<double>& seconds) {
  app.add_option("--seconds", seconds, "Time to tune a problem at most [DORAJIT_TUNE_SECONDS, 2]")
      ->option_text("S")
      ->check(number_range(0, kMaxTuneSeconds));
}

Result<launch::ConfigAnswer> tune_again(const launch::Problem& problem, device::Device& device,
                                        const autotune::EngineParts& parts,
                                        Statistics& statistics) {
  constexpr std::chrono::seconds kPatience{60};
  cache::TuningStore& store = *parts.store;
  const std::string& fingerprint = device.info().fingerprint;
  const std::string key = to_text(problem);
  const auto claim = store.wait_for_claim(fingerprint, key, kPatience);
  if (!claim) {
    return fail(
        StatusCode::kIoError,
        std::format("another process has been tuning {} for {} s; try again when it is done", key,
                    kPatience.count()));
  }
  // A fallback chain over a store that knows nothing has to tune.
  const std::shared_ptr<cache::TuningStore> empty = cache::TuningStore::open("");
  autotune::TuningConfigSource source(parts.engine->settings(), empty, statistics);
  launch::ConfigAnswer answer = source.find(problem, device, parts.engine->kernels());
  const auto winner = empty->find_winner(fingerprint, key);
  if (winner) store.record(empty->trials(fingerprint, key), *winner);
  return answer;
}

}  // namespace dorajit::cli
