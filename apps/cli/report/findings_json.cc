#include "apps/cli/report/findings_json.h"

#include <utility>

#include "apps/cli/views/trials_table.h"

namespace dorajit::cli::report {
namespace {

Json problem_json(const ProblemFindings& found) {
  Json row = cli::to_json(found.winner);
  row.erase("device");
  row["age_s"] = found.age_s;
  row["speedup_standard_error"] = found.speedup_error;
  row["source"] = found.source;
  row["for_these_kernels"] = found.is_for_these_kernels;
  row["bytes"] = nullptr;
  row["gb_per_s"] = nullptr;
  if (found.roofline) {
    row["bytes"] = found.roofline->bytes;
    row["gb_per_s"] = found.roofline->bytes_per_ns;
  }
  row["trials"] = trials_json(found.trials, found.winner);
  return row;
}

}  // namespace

Json to_json(const DeviceFindings& device) {
  Json row = {{"fingerprint", device.fingerprint},
              {"peak_gb_per_s", nullptr},
              {"trials", device.trials},
              {"trials_that_failed", device.bad_trials},
              {"mean_speedup", device.mean_speedup()},
              {"defaults_kept", device.defaults_kept()},
              {"problems", Json::array()}};
  if (device.memory) row["peak_gb_per_s"] = device.memory->bytes_per_ns;
  for (const ProblemFindings& found : device.problems) {
    row["problems"].push_back(problem_json(found));
  }
  return row;
}

}  // namespace dorajit::cli::report
