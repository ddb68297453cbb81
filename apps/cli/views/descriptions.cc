#include "apps/cli/views/descriptions.h"

#include <format>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
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

}  // namespace dorajit::cli
