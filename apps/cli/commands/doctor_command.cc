#include "apps/cli/commands/doctor_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <vector>

#include "apps/cli/commands/doctor_checks.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {
namespace {

Json findings_json(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"subject", finding.subject},
                    {"condition", name(finding.condition)},
                    {"what", finding.what},
                    {"log", finding.log}});
  }
  return rows;
}

void print_findings(std::string_view heading, const std::vector<Finding>& findings) {
  if (findings.empty()) return;
  Table table({{std::string(heading)}, {""}, {""}});
  for (const Finding& finding : findings) {
    table.add_row({"  " + finding.subject, std::string(name(finding.condition)), finding.what});
  }
  print(table.text());
  for (const Finding& finding : findings) {
    if (finding.condition != Condition::kAbsent && !finding.log.empty())
      print(std::format("\n{}:\n{}\n", finding.subject, finding.log));
  }
}

Result<std::vector<launch::DeviceId>> wanted_devices(Engine& engine, const std::string& text) {
  DORAJIT_ASSIGN(const std::optional<launch::DeviceId> asked, parse_device(text));
  if (asked) return std::vector{*asked};
  std::vector<launch::DeviceId> ids;
  for (int i = 0; i < engine.cuda_device_count(); ++i) {
    ids.push_back({.kind = kernels::DeviceKind::kCuda, .ordinal = i});
  }
  ids.push_back({});
  return ids;
}

}  // namespace

CLI::App* DoctorCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("doctor", "Check what dorajit needs and say what to do about the rest");
  command->footer("Example:\n  dorajit doctor --cache-dir /srv/dorajit");
  return command;
}

Result<ExitCode> DoctorCommand::run(const Invocation& invocation) {
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kOff;  // a check-up tunes nothing
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  DORAJIT_ASSIGN(const std::vector<launch::DeviceId> ids,
                 wanted_devices(engine, invocation.device));

  std::vector<Finding> pieces = {
      check_driver(),
      check_nvrtc(settings, engine.kernels()),
      check_host_compiler(engine.kernels()),
      check_cache_folder(settings.cache_dir, *parts.store),
      check_database(*parts.store),
      check_shipped_databases(settings.shipped_databases, autotune::overlay_trust_of(settings))};
  if (!settings.locked_path.empty()) pieces.push_back(check_lock_file(settings.locked_path));
  std::vector<Finding> devices;
  for (const launch::DeviceId& id : ids) devices.push_back(check_device(engine, id));
  const std::vector<Finding> environment = check_environment();
  const bool is_usable = std::ranges::any_of(
      devices, [](const Finding& finding) { return finding.condition == Condition::kGood; });

  if (invocation.json) {
    Json document = begin_document("doctor");
    document["usable"] = is_usable;
    document["pieces"] = findings_json(pieces);
    document["devices"] = findings_json(devices);
    document["environment"] = findings_json(environment);
    print_document(document);
  } else {
    print_findings("pieces", pieces);
    print_findings("devices", devices);
    print_findings("environment", environment);
    print(is_usable ? "dorajit works on this machine\n"
                    : "dorajit does not work on this machine: no device computes right\n");
  }
  return is_usable ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace dorajit::cli
