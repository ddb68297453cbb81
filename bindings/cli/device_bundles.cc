#include "bindings/cli/device_bundles.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernel_templates/registry.h"
#include "runtime/base/hash.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {
namespace {

using kernels::DeviceKind;

DeviceKind kind_of(std::string_view fingerprint) {
  return fingerprint.starts_with("cuda/") ? DeviceKind::kCuda : DeviceKind::kCpu;
}

}  // namespace

std::string model_file_name(std::string_view fingerprint) {
  fingerprint.remove_prefix(std::min(fingerprint.find('/') + 1, fingerprint.size()));
  std::string name;
  for (const char c : fingerprint.substr(0, fingerprint.find('/'))) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_plain = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (is_plain) {
      name += lower;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (name.ends_with('_')) name.pop_back();
  return name.empty() ? "unnamed" : name;
}

std::int64_t drop_other_templates(std::vector<cache::Trial>& trials) {
  std::map<std::pair<std::string, DeviceKind>, std::string> ours;  // by variant
  return static_cast<std::int64_t>(std::erase_if(trials, [&](const cache::Trial& trial) {
    const auto problem = launch::parse_problem(trial.problem);
    if (!problem) return true;
    const DeviceKind kind = kind_of(trial.device);
    std::string& templates = ours[{to_text(problem->variant), kind}];
    if (templates.empty()) templates = hash_hex(source_identity(problem->variant, kind));
    return trial.environment.templates != templates;
  }));
}

std::vector<DeviceBundle> bundle_by_model(const std::vector<cache::Trial>& trials) {
  std::map<std::string, DeviceBundle> by_name;
  for (const cache::Trial& trial : trials) {
    DeviceBundle& bundle = by_name[model_file_name(trial.device)];
    const bool is_first = bundle.trials.empty();
    bundle.trials.push_back(trial);
    bundle.devices.insert(trial.device);
    bundle.drivers.insert(trial.environment.driver);
    bundle.hosts.insert(trial.host);
    bundle.first_unix_s =
        is_first ? trial.created_unix_s : std::min(bundle.first_unix_s, trial.created_unix_s);
    bundle.last_unix_s = std::max(bundle.last_unix_s, trial.created_unix_s);
  }
  std::vector<DeviceBundle> bundles;
  for (auto& [name, bundle] : by_name) {
    bundle.name = name;
    bundles.push_back(std::move(bundle));
  }
  return bundles;
}

}  // namespace dorajit::cli
