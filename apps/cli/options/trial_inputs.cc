#include "apps/cli/options/trial_inputs.h"

#include <CLI/CLI.hpp>
#include <format>
#include <utility>

#include "apps/cli/terminal/table.h"

namespace dorajit::cli {
namespace {

void report_skipped(const TrialInput& input) {
  if (!input.file.damage.empty()) print_note(std::format("{}: {}", input.path, input.file.damage));
  const bool is_database = input.file.kind == cache::TrialFileKind::kDatabase;
  for (const cache::BadLine& line : input.file.bad) {
    print_note(std::format("{}:{}: skipped: {}", input.path, line.number, line.reason));
  }
  const std::int64_t unnamed = input.file.bad_count - std::ssize(input.file.bad);
  if (unnamed > 0) {
    print_note(std::format("{}: {} skipped", input.path,
                           count_text(unnamed, is_database ? "bad row" : "more bad line")));
  }
}

}  // namespace

void add_partial_option(CLI::App& app, bool& partial) {
  app.add_flag("--partial", partial,
               "Also take the trials that are left of a file of text that was cut");
}

Result<std::vector<TrialInput>> read_inputs(std::span<const std::string> paths, bool partial,
                                            ProgressBar& progress) {
  std::vector<TrialInput> inputs;
  for (const std::string& path : paths) {
    DORAJIT_ASSIGN(cache::TrialFile file,
                   cache::read_trial_file(path, progress.follow("reading " + path)));
    const bool is_cut = file.kind == cache::TrialFileKind::kLines;
    if (!file.damage.empty() && !(partial && is_cut)) {
      return fail(
          StatusCode::kIoError,
          std::format("{} is damaged: {}; {}", path, file.damage,
                      is_cut ? "export it again, or take the trials that are left with --partial"
                             : "a tuning database in a cache folder is repaired by "
                               "`dorajit doctor --cache-dir FOLDER`"));
    }
    inputs.push_back({.path = path, .file = std::move(file)});
  }
  progress.hide();
  for (const TrialInput& input : inputs) report_skipped(input);
  return inputs;
}

Json to_json(const TrialInput& input) {
  Json bad = Json::array();
  for (const cache::BadLine& line : input.file.bad) {
    bad.push_back({{"line", line.number}, {"reason", line.reason}});
  }
  return {{"path", input.path},
          {"kind", input.file.kind == cache::TrialFileKind::kLines ? "lines" : "database"},
          {"trials", input.file.trials.size()},
          {"bad", input.file.bad_count},
          {"bad_lines", std::move(bad)},
          {"damage", input.file.damage}};
}

Json to_json(std::span<const TrialInput> inputs) {
  Json rows = Json::array();
  for (const TrialInput& input : inputs) rows.push_back(to_json(input));
  return rows;
}

}  // namespace dorajit::cli
