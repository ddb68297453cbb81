#include "apps/cli/commands/freeze_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <utility>

#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "apps/cli/views/lock_comparison.h"
#include "autotune/sources/locked_config_source.h"
#include "cache/files/output_file.h"
#include "kernel_templates/config_limits.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

constexpr const char* kThisMachine = "this machine";

bool names_problems(const ProblemOptions& options) {
  return names_any(options.sizes) || !options.shapes.empty() || !options.file.empty();
}

autotune::EngineParts make_untuned_engine(const Invocation& invocation) {
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kOff;
  return autotune::make_engine(settings);
}

// Every problem of the entries on a device, with what runs here where its config is used; where it
// cannot be, there is none.
Result<std::vector<cache::LockEntry>> as_here(const std::vector<cache::LockEntry>& entries,
                                              const ChosenDevice& chosen, Engine& engine,
                                              ProgressBar& progress, std::vector<Error>& failures) {
  std::vector<cache::LockEntry> here;
  for (const cache::LockEntry& entry : entries) {
    progress.show(std::format("checking {}", entry.problem));
    const auto problem = launch::parse_problem(entry.problem);
    if (!problem) {
      return fail(StatusCode::kIoError, std::format("\"{}\" is no problem", entry.problem));
    }
    const std::string why = kernels::why_config_is_invalid(
        problem->variant, chosen.device->info().traits, problem->vector_width,
        problem->largest_sizes(), entry.config);
    auto found =
        why.empty()
            ? autotune::fingerprint_of(*problem, entry.config, *chosen.device, engine.kernels())
            : fail(StatusCode::kIoError, std::format("{}: its config {} is invalid: {}",
                                                     entry.problem, to_text(entry.config), why));
    if (found) {
      here.push_back(*std::move(found));
    } else {
      failures.push_back(std::move(found).error());
    }
    progress.advance();
  }
  return here;
}

ExitCode report_comparison(const Invocation& invocation, const std::vector<LockSide>& sides) {
  std::vector<LockMismatch> mismatches;
  for (std::size_t i = 1; i < sides.size(); ++i) {
    std::ranges::move(compare_locks(sides.front(), sides[i]), std::back_inserter(mismatches));
  }
  if (invocation.json) {
    Json document = begin_document("freeze");
    document["same"] = mismatches.empty();
    document["files"] = Json::array();
    for (const LockSide& side : sides) {
      document["files"].push_back({{"path", side.name}, {"problems", side.entries.size()}});
    }
    document["mismatches"] = Json::array();
    for (const LockMismatch& one : mismatches) document["mismatches"].push_back(to_json(one));
    print_document(document);
  } else if (mismatches.empty()) {
    print(std::format("the same: {} run alike\n",
                      count_text(std::ssize(sides.front().entries), "problem")));
  } else {
    print(mismatches_text(sides.front().name, mismatches));
    print(std::format("not the same: {} in {}\n", count_text(std::ssize(mismatches), "difference"),
                      count_text(std::ssize(sides.front().entries), "problem")));
  }
  return mismatches.empty() ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

CLI::App* FreezeCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("freeze", "Write down what problems run, to hold processes to it");
  CLI::Option* out =
      command->add_option("--out", out_, "Where to write [standard output]")->option_text("FILE");
  add_problem_options(*command, options_);
  CLI::Option* compare =
      command->add_option("--compare", compared_, "Say how two or more such files differ")
          ->option_text("FILE")
          ->expected(2, 4096);
  CLI::Option* check =
      command->add_option("--check", checked_, "Say how this machine differs from such a file")
          ->option_text("FILE");
  compare->excludes(out);
  check->excludes(out)->excludes(compare);
  command->footer(
      "Example:\n"
      "  dorajit freeze --out train.lock\n"
      "  dorajit freeze --from problems.txt --out train.lock\n"
      "  dorajit freeze --compare rank0.lock rank1.lock");
  return command;
}

// Those that are named; else those that have a winner in the user's database.
Result<std::vector<launch::Problem>> FreezeCommand::wanted_problems(
    const ChosenDevice& chosen, cache::TuningStore& store) const {
  if (names_problems(options_)) return make_problems(options_, chosen.id.kind, "freeze");
  std::vector<launch::Problem> problems;
  const std::vector<cache::Winner> winners = store.winners();
  DORAJIT_TRY(store.readable());
  for (const cache::Winner& winner : winners) {
    if (winner.device != chosen.device->info().fingerprint) continue;
    if (const auto problem = launch::parse_problem(winner.problem)) problems.push_back(*problem);
  }
  if (!problems.empty()) return problems;
  return fail(StatusCode::kInvalidArgument,
              std::format("the tuning database has no winner for {}: tune first, or name problems "
                          "with --from FILE or --shape RxC",
                          chosen.device->info().fingerprint));
}

Result<ExitCode> FreezeCommand::freeze(const Invocation& invocation) const {
  if (invocation.json && out_.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "freeze --json needs --out FILE: standard output has room for one of the two");
  }
  if (names_problems(options_)) DORAJIT_TRY(check_problem_options(options_, "freeze"));
  const auto parts = make_untuned_engine(invocation);
  Engine& engine = *parts.engine;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
  DORAJIT_ASSIGN(const auto problems, wanted_problems(chosen, *parts.store));
  std::vector<cache::LockEntry> entries;
  Json rows = Json::array();
  {
    ProgressBar progress(!invocation.json, static_cast<int>(problems.size()));
    for (const launch::Problem& problem : problems) {
      progress.show(std::format("freezing {}", launch::to_text(problem)));
      DORAJIT_ASSIGN(const launch::ConfigAnswer answer, engine.prepare(problem, chosen.id));
      DORAJIT_ASSIGN(
          cache::LockEntry entry,
          autotune::fingerprint_of(problem, answer.config, *chosen.device, engine.kernels()));
      rows.push_back(to_json(entry));
      rows.back()["source"] = name(answer.origin);
      entries.push_back(std::move(entry));
      progress.advance();
    }
  }
  const std::string text = cache::to_lock_text(entries);
  const std::string count = count_text(std::ssize(entries), "problem");
  if (out_.empty()) {
    print_bytes(text);
    print_note(std::format("{} on {}", count, chosen.device->info().name));
    return ExitCode::kOk;
  }
  DORAJIT_TRY(cache::write_output_file(out_, text));
  if (invocation.json) {
    Json document = begin_document("freeze");
    document["out"] = out_;
    document["device"] = to_json(chosen.id, chosen.device->info());
    document["problems"] = std::move(rows);
    print_document(document);
  } else {
    print(std::format("{} on {} written to {}\n", count, chosen.device->info().name, out_));
  }
  return ExitCode::kOk;
}

Result<ExitCode> FreezeCommand::compare(const Invocation& invocation) const {
  std::vector<LockSide> sides;
  for (const std::string& path : compared_) {
    DORAJIT_ASSIGN(auto entries, cache::read_lock_file(path));
    sides.push_back({.name = path, .entries = std::move(entries)});
  }
  return report_comparison(invocation, sides);
}

Result<ExitCode> FreezeCommand::check(const Invocation& invocation) const {
  DORAJIT_ASSIGN(auto entries, cache::read_lock_file(checked_));
  const auto parts = make_untuned_engine(invocation);
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, invocation.device));
  std::vector<cache::LockEntry> here;
  std::vector<Error> failures;
  {
    // What the file has for other devices is none of this one's business, unless it has nothing
    // for this one: then that is the difference.
    const std::string& fingerprint = chosen.device->info().fingerprint;
    std::vector<cache::LockEntry> mine;
    std::ranges::copy_if(entries, std::back_inserter(mine),
                         [&](const auto& entry) { return entry.device == fingerprint; });
    if (!mine.empty()) entries = mine;
    ProgressBar progress(!invocation.json, static_cast<int>(mine.size()));
    DORAJIT_ASSIGN(here, as_here(mine, chosen, *parts.engine, progress, failures));
  }
  for (const Error& failure : failures) print_error(failure);
  return report_comparison(invocation, {{.name = checked_, .entries = std::move(entries)},
                                        {.name = kThisMachine, .entries = std::move(here)}});
}

Result<ExitCode> FreezeCommand::run(const Invocation& invocation) {
  if (!compared_.empty()) return compare(invocation);
  if (!checked_.empty()) return check(invocation);
  return freeze(invocation);
}

}  // namespace dorajit::cli
