#include "apps/cli/views/descriptions.h"

#include <format>

#include "apps/cli/terminal/output.h"

namespace dorajit::cli {

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

}  // namespace dorajit::cli
