#include <CLI/CLI.hpp>
#include <filesystem>
#include <format>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/report/findings.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/trials_table.h"
#include "autotune/engine_factory.h"
#include "cache/files/shared_file.h"
#include "cache/records/winner_choice.h"

namespace dorajit::cli {
namespace {

using report::Source;

struct ReportSource {
  std::vector<Source> sources;
  std::string origin;  // names what was read
  std::string remark;  // shown where nothing was found
};

Result<ReportSource> read_files(std::span<const std::string> paths, bool partial,
                                bool with_progress) {
  ProgressBar progress(with_progress);
  DORAJIT_ASSIGN(std::vector<TrialInput> inputs, read_inputs(paths, partial, progress));
  ReportSource read;
  for (TrialInput& input : inputs) {
    read.origin += (read.origin.empty() ? "" : ", ") + input.path;
    auto winners = cache::choose_winners(input.file.trials);
    read.sources.push_back({.name = std::filesystem::path(input.path).filename().string(),
                            .trials = std::move(input.file.trials),
                            .winners = std::move(winners)});
  }
  return read;
}

Result<ReportSource> read_store(cache::TuningStore& store, const Settings& settings) {
  ReportSource read;
  auto trials = store.trials();
  DORAJIT_TRY(store.readable());
  auto winners = store.winners();
  DORAJIT_TRY(store.readable());
  read.sources.push_back(
      {.name = "user database", .trials = std::move(trials), .winners = std::move(winners)});
  read.origin = store.location();
  if (!settings.shipped_databases.empty()) {
    read.remark =
        std::format("The databases in {} are shown with --from.", settings.shipped_databases);
  }
  return read;
}

// The document in the page. It cannot end the element that holds it.
std::string page_html(const Json& document) {
  constexpr std::string_view kPlace = "{{document}}";
  std::string page(report::kEmbeddedFiles[0].text);
  std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
    text.replace(at, 1, "\\u003c");
  }
  return page.replace(page.find(kPlace), kPlace.size(), text);
}

struct ReportOptions {
  std::string html;
  std::vector<std::string> files;
  bool partial = false;
};

Result<ExitCode> run_report(const Invocation& invocation, const ReportOptions& options) {
  if (options.html.empty() && !invocation.json) {
    return fail(StatusCode::kInvalidArgument,
                "report needs --html FILE, the page to write, or --json");
  }
  DORAJIT_ASSIGN(const DeviceFilter is_of_device,
                 device_filter(invocation.settings, invocation.device));
  ReportSource read;
  if (options.files.empty()) {
    const auto parts = autotune::make_engine(invocation.settings);
    DORAJIT_ASSIGN(read, read_store(*parts.store, invocation.settings));
  } else {
    DORAJIT_ASSIGN(read, read_files(options.files, options.partial, !invocation.json));
  }
  for (Source& source : read.sources) {
    const auto is_other = [&](const auto& record) { return !is_of_device(record.device); };
    std::erase_if(source.trials, is_other);
    std::erase_if(source.winners, is_other);
  }
  const auto devices = report::make_findings(read.sources);

  std::int64_t problems = 0;
  Json rows = Json::array();
  for (const report::DeviceFindings& device : devices) {
    problems += std::ssize(device.problems);
    rows.push_back(to_json(device));
  }
  const Json document = {{"html", options.html.empty() ? Json() : Json(options.html)},
                         {"from", read.origin},
                         {"remark", read.remark},
                         {"written_unix_s", cache::now_unix_s()},
                         {"devices", std::move(rows)}};
  std::string text;
  if (!options.html.empty()) {
    const std::string page = page_html(result_document("report", document));
    DORAJIT_TRY(cache::write_output_file(options.html, page));
    text = std::format("{} on {} written to {}, {}\n{}", count_text(problems, "problem"),
                       count_text(std::ssize(devices), "device"), options.html,
                       bytes_text(std::ssize(page)),
                       devices.empty() ? "`dorajit demo --quick` measures some\n" : "");
  }
  return print_result(invocation.json, "report", document, text);
}

}  // namespace

void declare_report(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<ReportOptions>(
      app, commands, "report", "Show tuning data as a page for browsers",
      "dorajit report --html report.html\n"
      "  dorajit report --html h200.html --from h200.jsonl --device H200",
      run_report, /*filters_by_device=*/true);
  command.add_option("--html", options.html, "The page to write")->option_text("FILE");
  command
      .add_option("--from", options.files,
                  "Show a file of `dorajit export` or a tuning database instead; may be repeated")
      ->option_text("FILE");
  add_partial_option(command, options.partial);
}

}  // namespace dorajit::cli
