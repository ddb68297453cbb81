#include "autotune/search/tuning_report.h"

#include <format>

#include "kernel_templates/config_text.h"

namespace dorajit::autotune {

std::string tuning_report(const launch::Problem& problem, const TuneResult& result,
                          double seconds) {
  return std::format(
      "dorajit autotuning for kernel {}, with key as {}, finished after {:.2f}s, best config "
      "selected: {}; {:.2f} us, default {} {:.2f} us, {} configs\n",
      problem.variant.operation->name, to_text(problem), seconds, to_text(result.winner),
      result.winner_ns / 1e3, to_text(result.default_config), result.default_ns / 1e3,
      result.trials.size());
}

}  // namespace dorajit::autotune
