#include "cache/tuning_run.h"

namespace dorajit::cache {

bool are_of_one_run(const Trial& trial, const Winner& winner) {
  return trial.created_unix_s == winner.created_unix_s && trial.problem == winner.problem &&
         trial.device == winner.device && trial.environment == winner.environment;
}

void name_default(std::span<Trial> trials, const Winner& winner) {
  for (Trial& trial : trials) {
    if (!trial.default_config && are_of_one_run(trial, winner)) {
      trial.default_config = winner.default_config;
    }
  }
}

}  // namespace dorajit::cache
