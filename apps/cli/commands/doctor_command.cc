#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <memory>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/commands/doctor_checks.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
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

std::string findings_text(std::string_view heading, const std::vector<Finding>& findings) {
  if (findings.empty()) return {};
  Table table({{std::string(heading)}, {""}, {""}});
  for (const Finding& finding : findings) {
    table.add_row({"  " + finding.subject, std::string(name(finding.condition)), finding.what});
  }
  std::string text = table.text();
  for (const Finding& finding : findings) {
    if (finding.condition != Condition::kAbsent && !finding.log.empty())
      text += std::format("\n{}:\n{}\n", finding.subject, finding.log);
  }
  return text;
}

std::string verdict_text(const TrialInput& input) {
  const auto& [path, file] = input;
  const bool is_database = file.kind == cache::TrialFileKind::kDatabase;
  std::string text =
      std::format("{}: {}, {}{}\n", path, count_text(std::ssize(file.trials), "good trial"),
                  is_database ? count_text(file.winners, "good winner") + ", " : "",
                  count_text(file.bad_count, is_database ? "bad row" : "bad line"));
  for (const cache::BadLine& line : file.bad) {
    text += std::format("{}:{}: {}\n", path, line.number, line.reason);
  }
  if (file.is_complete()) return text + "all of it is good\n";
  if (file.damage.empty()) return text + "`dorajit export` leaves out what is bad\n";
  return text + std::format("{}: damaged: {}; {}\n", path, file.damage,
                            is_database
                                ? "the next dorajit that uses its cache folder sets it aside "
                                  "and keeps the rows that it can read"
                                : "export it again, or keep the rest of it with `dorajit "
                                  "export --partial --from FILE --out OTHER`");
}

// Checks a file of trials or a database and changes nothing.
Result<ExitCode> check_file(const std::string& path, bool json) {
  TrialInput input{.path = path, .file = {}};
  {
    ProgressBar progress(!json);
    DORAJIT_ASSIGN(input.file, cache::read_trial_file(path, progress.follow("reading " + path)));
  }
  const bool is_good = input.file.is_complete();
  Json document = {{"good", is_good}};
  document.update(to_json(input));
  document["winners"] = input.file.winners;
  print_result(json, "doctor", document, verdict_text(input));
  return is_good ? ExitCode::kOk : ExitCode::kFailed;
}

// The findings, with a description of each device.
Json devices_json(const std::vector<Finding>& findings, const std::vector<launch::DeviceId>& ids,
                  Engine& engine) {
  Json rows = findings_json(findings);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (const auto device = engine.device(ids[i])) {
      rows[i].update(to_json(ids[i], (*device)->info()));
    }
  }
  return rows;
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

// Without a file, the machine is checked.
Result<ExitCode> run_doctor(const Invocation& invocation, const std::string& path) {
  if (!path.empty()) return check_file(path, invocation.json);
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kOff;
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

  print_result(
      invocation.json, "doctor",
      {{"usable", is_usable},
       {"pieces", findings_json(pieces)},
       {"devices", devices_json(devices, ids, engine)},
       {"environment", findings_json(environment)}},
      findings_text("pieces", pieces) + findings_text("devices", devices) +
          findings_text("environment", environment) +
          (is_usable
               ? "dorajit works on this machine\n"
               : "dorajit does not work on this machine: the self-test failed on every device\n"));
  return is_usable ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void declare_doctor(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, path] = add_command<std::string>(
      app, commands, "doctor", "Check devices, compilers and tuning database, or a file",
      "dorajit doctor\n  dorajit doctor h200.jsonl", run_doctor);
  command.add_option("FILE", path,
                     "Check only this file of `dorajit export`, or database, and change nothing");
}

}  // namespace dorajit::cli
