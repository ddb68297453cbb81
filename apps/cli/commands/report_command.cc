#include "apps/cli/commands/report_command.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <format>
#include <span>
#include <utility>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/report/findings.h"
#include "apps/cli/report/findings_json.h"
#include "apps/cli/report/page.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "autotune/engine_factory.h"
#include "cache/files/output_file.h"
#include "cache/records/winner_choice.h"

namespace dorajit::cli {
namespace {

using report::Source;

struct Read {
  std::vector<Source> sources;
  report::PageFacts facts;
};

Result<Read> read_files(std::span<const std::string> paths, bool partial, bool with_progress) {
  ProgressBar progress(with_progress);
  DORAJIT_ASSIGN(std::vector<TrialInput> inputs, read_inputs(paths, partial, progress));
  Read read;
  for (TrialInput& input : inputs) {
    read.facts.origin += (read.facts.origin.empty() ? "" : ", ") + input.path;
    auto winners = cache::choose_winners(input.file.trials);
    read.sources.push_back({.name = std::filesystem::path(input.path).filename().string(),
                            .trials = std::move(input.file.trials),
                            .winners = std::move(winners)});
  }
  return read;
}

Result<Read> read_store(cache::TuningStore& store, const Settings& settings) {
  Read read;
  auto trials = store.trials();
  DORAJIT_TRY(store.readable());
  auto winners = store.winners();
  DORAJIT_TRY(store.readable());
  read.sources.push_back(
      {.name = "user database", .trials = std::move(trials), .winners = std::move(winners)});
  read.facts.origin = store.location();
  if (!settings.shipped_databases.empty()) {
    read.facts.remark =
        std::format("The databases in {} are shown with --from.", settings.shipped_databases);
  }
  return read;
}

void keep_devices(std::vector<Source>& sources, const std::string& fingerprint,
                  const std::string& only_device) {
  const auto is_other = [&](const auto& record) {
    return !record.device.contains(fingerprint) ||
           (!only_device.empty() && record.device != only_device);
  };
  for (Source& source : sources) {
    std::erase_if(source.trials, is_other);
    std::erase_if(source.winners, is_other);
  }
}

}  // namespace

CLI::App* ReportCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Show tuning data as a page for browsers");
  command->add_option("--html", html_, "The page to write")->option_text("FILE");
  command
      ->add_option("--from", files_,
                   "Show a file of `dorajit export` or a tuning database instead; may be repeated")
      ->option_text("FILE");
  command
      ->add_option("--device-fingerprint", fingerprint_,
                   "Only devices whose fingerprint contains this")
      ->option_text("TEXT");
  add_partial_option(*command, partial_);
  command->footer(
      "Example:\n"
      "  dorajit report --html report.html\n"
      "  dorajit report --html h200.html --from h200.jsonl --device-fingerprint H200");
  return command;
}

Result<ExitCode> ReportCommand::run(const Invocation& invocation) {
  if (html_.empty() && !invocation.json) {
    return fail(StatusCode::kInvalidArgument,
                "report needs --html FILE, which is the page to write, or --json");
  }
  Read read;
  std::string only_device;
  if (files_.empty() || !invocation.device.empty()) {
    const auto parts = autotune::make_engine(invocation.settings);
    DORAJIT_ASSIGN(only_device, fingerprint_asked_for(*parts.engine, invocation.device));
    if (files_.empty()) {
      DORAJIT_ASSIGN(read, read_store(*parts.store, invocation.settings));
    }
  }
  if (!files_.empty()) {
    DORAJIT_ASSIGN(read, read_files(files_, partial_, !invocation.json));
  }
  keep_devices(read.sources, fingerprint_, only_device);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  read.facts.now_unix_s = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto devices = report::make_findings(read.sources, read.facts.now_unix_s);

  std::int64_t problems = 0;
  for (const report::DeviceFindings& device : devices) problems += std::ssize(device.problems);
  std::size_t page_bytes = 0;
  if (!html_.empty()) {
    const std::string page = report::page_html(devices, read.facts);
    page_bytes = page.size();
    DORAJIT_TRY(cache::write_output_file(html_, page));
  }
  if (invocation.json) {
    Json document = begin_document("report");
    document["html"] = html_.empty() ? Json(nullptr) : Json(html_);
    document["from"] = read.facts.origin;
    document["devices"] = Json::array();
    for (const report::DeviceFindings& device : devices) {
      document["devices"].push_back(report::to_json(device));
    }
    print_document(document);
  } else {
    print(std::format("{} on {} written to {}, {}\n", count_text(problems, "problem"),
                      count_text(std::ssize(devices), "device"), html_,
                      bytes_text(static_cast<std::int64_t>(page_bytes))));
    if (devices.empty()) print("`dorajit demo --quick` measures some\n");
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
