
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <format>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/report/findings.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "autotune/engine_factory.h"
#include "cache/database/trial_files.h"
#include "cache/files/shared_file.h"
#include "cache/records/winner_choice.h"
#include "runtime/base/hash.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {
namespace {

struct ReadTrials {
  std::vector<TrialInput> files;
  std::vector<report::Source> sources;  // each file, or the user's database
  std::string origin;                   // names what was read
  std::vector<std::string> databases;   // must not be overwritten
};

// Of the files, or without any those of the user's database.
Result<ReadTrials> read_trials(const Invocation& invocation, const std::vector<std::string>& paths,
                               bool partial, ProgressBar& progress) {
  ReadTrials read;
  if (paths.empty()) {
    progress.show("reading the database");
    const auto parts = autotune::make_engine(invocation.settings);
    cache::TuningStore& store = *parts.store;
    auto trials = store.trials();
    DORAJIT_TRY(store.readable());
    auto winners = store.winners();
    DORAJIT_TRY(store.readable());
    read.sources.push_back(
        {.name = "user database", .trials = std::move(trials), .winners = std::move(winners)});
    read.origin = store.location();
    read.databases = {store.location()};
    return read;
  }
  DORAJIT_ASSIGN(read.files, read_inputs(paths, partial, progress));
  for (const TrialInput& input : read.files) {
    read.sources.push_back({.name = std::filesystem::path(input.path).filename().string(),
                            .trials = input.file.trials,
                            .winners = cache::choose_winners(input.file.trials)});
    if (input.file.kind == cache::TrialFileKind::kDatabase) read.databases.push_back(input.path);
  }
  read.origin = joined(paths);
  return read;
}

// Text may replace a file that it was made of; a database may be in use.
Status check_is_no_input(const std::string& out, const std::vector<std::string>& databases) {
  std::error_code ignored;
  for (const std::string& path : databases) {
    if (std::filesystem::equivalent(path, out, ignored)) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--out {} is a database that is exported; name another file", out));
    }
  }
  return {};
}

// Removes the trials of other kernels than this program's, and returns their number.
std::int64_t drop_other_kernels(std::vector<cache::Trial>& trials) {
  using kernels::DeviceKind;
  std::map<std::pair<std::string, DeviceKind>, std::string> ours;  // by variant
  return static_cast<std::int64_t>(std::erase_if(trials, [&](const cache::Trial& trial) {
    const auto problem = launch::parse_problem(trial.problem);
    if (!problem) return true;
    const DeviceKind kind =
        trial.device.starts_with("cuda/") ? DeviceKind::kCuda : DeviceKind::kCpu;
    std::string& templates = ours[{to_text(problem->variant), kind}];
    if (templates.empty()) templates = hash_hex(source_identity(problem->variant, kind));
    return trial.environment.templates != templates;
  }));
}

// Where `out` is empty, the caller prints the text.
Result<cache::TrialText> write_to(const std::string& out, const std::vector<cache::Trial>& trials,
                                  ProgressBar& progress) {
  const auto shown = progress.follow("writing");
  if (out.empty()) return cache::to_lines(trials, shown);
  if (!out.ends_with(".db")) return cache::write_trial_file(out, trials, shown);
  DORAJIT_TRY(cache::write_shipped_database(out, trials));
  return cache::TrialText{.lines = {}, .trials = std::ssize(cache::each_once_in_order(trials))};
}

struct ExportOptions {
  std::string out;
  std::vector<std::string> files;
  bool ship = false;
  bool partial = false;
};

Result<ExitCode> run_export(const Invocation& invocation, const ExportOptions& options) {
  if (invocation.json && options.out.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "export --json needs --out FILE, as standard output takes the document");
  }
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const DeviceFilter is_of_device,
                 device_filter(invocation.settings, invocation.device));
  DORAJIT_ASSIGN(const ReadTrials read,
                 read_trials(invocation, options.files, options.partial, progress));
  DORAJIT_TRY(check_is_no_input(options.out, read.databases));
  std::vector<cache::Trial> trials;
  for (const report::Source& source : read.sources) {
    std::ranges::copy(source.trials, std::back_inserter(trials));
  }
  std::erase_if(trials, [&](const cache::Trial& trial) { return !is_of_device(trial.device); });
  const auto future = static_cast<std::int64_t>(
      std::erase_if(trials, [latest = cache::latest_plausible_time()](const cache::Trial& trial) {
        return trial.created_unix_s > latest;
      }));
  const std::int64_t other_kernels = options.ship ? drop_other_kernels(trials) : 0;
  if (options.ship) trials = cache::deciding_trials(trials);
  if (options.ship && trials.empty()) {
    return fail(StatusCode::kIoError,
                std::format("there is nothing to ship: {} of other kernels than this program's",
                            count_text(other_kernels, "trial")));
  }

  DORAJIT_ASSIGN(const cache::TrialText text, write_to(options.out, trials, progress));
  progress.hide();

  std::vector<std::string> said = {
      std::format("{} from {}{}", count_text(text.trials, "trial"),
                  read.files.empty() ? read.origin : count_text(std::ssize(read.files), "file"),
                  options.out.empty() ? "" : " written to " + options.out)};
  if (text.left_out > 0) {
    said.push_back(
        count_text(text.left_out, "trial") +
        " left out, which JSON cannot hold: a text is not UTF-8, or a time is not finite");
  }
  if (future > 0) {
    said.push_back(count_text(future, "trial") +
                   " of the future left out, which no reader accepts: a clock was or is wrong");
  }
  if (other_kernels > 0) {
    said.push_back(count_text(other_kernels, "trial") +
                   " of other kernels than this program's left out");
  }
  if (options.out.empty()) {
    print_bytes(text.lines);
    for (const std::string& line : said) print_note(line);
    return ExitCode::kOk;
  }
  std::string lines;
  for (const std::string& line : said) lines += line + "\n";
  return print_result(invocation.json, "export",
                      {{"out", options.out},
                       {"files", to_json(read.files)},
                       {"trials", text.trials},
                       {"winners", cache::choose_winners(trials).size()},
                       {"left_out", text.left_out},
                       {"future", future},
                       {"other_kernels", other_kernels}},
                      lines);
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
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(ReadTrials read,
                 read_trials(invocation, options.files, options.partial, progress));
  progress.hide();
  for (report::Source& source : read.sources) {
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
  const std::string& shipped = invocation.settings.shipped_databases;
  const std::string remark =
      options.files.empty() && !shipped.empty()
          ? std::format("The databases in {} are shown with --from.", shipped)
          : "";
  const Json document = {{"html", options.html.empty() ? Json() : Json(options.html)},
                         {"from", read.origin},
                         {"remark", remark},
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

std::unexpected<Error> nothing_written(std::string_view what, cache::TuningStore& store) {
  return fail(StatusCode::kIoError,
              std::format("{}, since the tuning database cannot be written: {}", what,
                          store.reason_not_persistent()));
}

struct ImportOptions {
  std::vector<std::string> files;
  bool rebuild = false;
  bool partial = false;
};

Result<ExitCode> run_import(const Invocation& invocation, const ImportOptions& options) {
  if (options.files.empty() && !options.rebuild) {
    return fail(StatusCode::kInvalidArgument,
                "import needs a FILE of `dorajit export`, a tuning database, or --rebuild");
  }
  ProgressBar progress(!invocation.json);
  DORAJIT_ASSIGN(const std::vector<TrialInput> inputs,
                 read_inputs(options.files, options.partial, progress));
  std::vector<cache::Trial> trials;
  for (const TrialInput& input : inputs) {
    std::ranges::copy(input.file.trials, std::back_inserter(trials));
  }
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  const auto counts = store.import_trials(trials, progress.follow("adding to the database"));
  progress.hide();
  if (!counts) return nothing_written("nothing was imported", store);
  std::optional<std::int64_t> winners;
  if (options.rebuild) {
    winners = store.rebuild_winners();
    if (!winners) return nothing_written("the winners are unchanged", store);
  }
  Json document = {{"database", store.location()},
                   {"files", to_json(inputs)},
                   {"added", counts->added},
                   {"known", counts->known},
                   {"winners_changed", counts->winners}};
  std::string text;
  if (!inputs.empty()) {
    text += std::format("{} added to {}, {} known before; {} changed\n",
                        count_text(counts->added, "trial"), store.location(), counts->known,
                        count_text(counts->winners, "winner"));
  }
  if (winners) {
    document["winners"] = *winners;
    text += std::format("{} derived from {} in {}\n", count_text(*winners, "winner"),
                        count_text(store.trial_count(), "trial"), store.location());
  }
  return print_result(invocation.json, "import", document, text);
}

}  // namespace

void declare_export(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<ExportOptions>(
      app, commands, "export", "Write trials to a file, for other machines",
      "dorajit export --out h200.jsonl --device H200\n"
      "  dorajit export --ship --from host-a.jsonl host-b.jsonl --out shipped.db",
      run_export, /*filters_by_device=*/true);
  command
      .add_option("--out", options.out,
                  "Where to write: text, or a read-only database if it ends with .db [standard "
                  "output]")
      ->option_text("FILE");
  command
      .add_option("--from", options.files,
                  "Take a file of `dorajit export` or a tuning database instead of this machine's "
                  "database; takes several")
      ->option_text("FILE");
  command.add_flag("--ship", options.ship,
                   "Only the trials that prove winners of this program's kernels, as installations "
                   "ship them");
  add_partial_option(command, options.partial);
}

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

void declare_import(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<ImportOptions>(
      app, commands, "import", "Add trials of other machines to the tuning database",
      "dorajit import h200.jsonl other-host/tuning.db\n"
      "  dorajit import --rebuild",
      run_import);
  command.add_option("FILE", options.files, "Files of `dorajit export`, or tuning databases");
  command.add_flag("--rebuild", options.rebuild,
                   "Derive all winners again, not only those of problems with new trials");
  add_partial_option(command, options.partial);
}

}  // namespace dorajit::cli
