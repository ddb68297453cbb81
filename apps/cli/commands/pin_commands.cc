
#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "autotune/sources/pinned_config.h"
#include "cache/files/shared_file.h"
#include "cache/records/pins.h"
#include "cache/records/tuning_records.h"
#include "kernel_templates/config.h"

namespace dorajit::cli {
namespace {

// The config is compiled and loaded, which shows that it runs.
Result<cache::Pin> make_pin(const launch::Problem& problem, const kernels::Config& config,
                            const ChosenDevice& chosen, Engine& engine) {
  auto pin = autotune::pin_of(problem, config, *chosen.device, engine.kernels());
  if (!pin) {
    pin.error().message = std::format("{}: {}", to_text(problem), pin.error().message);
  } else if (pin->config != config) {
    return fail(StatusCode::kNoCompiler,
                std::format("{}: without a compiler only {} runs here, the library's own kernel; "
                            "set DORAJIT_CXX to a C++20 compiler",
                            to_text(problem), to_text(pin->config)));
  }
  return pin;
}

struct PinOptions {
  ProblemOptions problems;
  std::string config;
  bool removes = false;
};

Result<ExitCode> run_pin(const Invocation& invocation, const PinOptions& options) {
  DORAJIT_TRY(check_problem_options(options.problems, "pin"));
  if (options.config.empty() && !options.removes) {
    return fail(StatusCode::kInvalidArgument, "pin needs --config CONFIG or --remove");
  }
  const auto config = kernels::parse_config(options.config);
  if (!config && !options.removes) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("--config {} is not a config, as b2048-w8-r1-v8-u1-c0 is; `dorajit show "
                    "--trials` lists some",
                    options.config));
  }
  const auto parts = autotune::make_engine(invocation.settings);
  const cache::Pins& pins = parts.store->pins();
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, invocation.device));
  DORAJIT_ASSIGN(const auto problems, make_problems(options.problems, chosen.id.kind, "pin"));
  Json rows = Json::array();
  std::string text;
  for (const launch::Problem& problem : problems) {
    const std::string key = to_text(problem);
    if (options.removes) {
      DORAJIT_ASSIGN(const bool was_pinned, pins.remove(chosen.device->info().fingerprint, key));
      rows.push_back({{"problem", key}, {"was_pinned", was_pinned}});
      text += std::format("{}: {}\n", key, was_pinned ? "not pinned any more" : "was not pinned");
      continue;
    }
    DORAJIT_ASSIGN(const cache::Pin pin, make_pin(problem, *config, chosen, *parts.engine));
    DORAJIT_TRY(pins.add(pin));
    rows.push_back(to_json(pin));
    text += std::format("{}: pinned to {}\n", key, options.config);
  }
  return print_result(invocation.json, "pin",
                      {{"device", to_json(chosen.id, chosen.device->info())},
                       {options.removes ? "removed" : "pinned", rows}},
                      text);
}

autotune::EngineParts make_untuned_engine(const Invocation& invocation) {
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kOff;
  return autotune::make_engine(settings);
}

// What the device runs with the config of each entry, without those that it cannot run.
Result<std::vector<cache::Pin>> as_here(const std::vector<cache::Pin>& entries,
                                        const ChosenDevice& chosen, Engine& engine,
                                        ProgressBar& progress, std::vector<Error>& failures) {
  std::vector<cache::Pin> here;
  for (const cache::Pin& entry : entries) {
    progress.show(std::format("checking {}", entry.problem));
    DORAJIT_ASSIGN(const launch::Problem problem, parse_key(entry.problem));
    if (auto found = autotune::pin_of(problem, entry.config, *chosen.device, engine.kernels())) {
      here.push_back(*std::move(found));
    } else {
      Error& failure = failures.emplace_back(std::move(found).error());
      failure.message = std::format("{}: {}", entry.problem, failure.message);
    }
    progress.advance();
  }
  return here;
}

ExitCode report_comparison(const Invocation& invocation, const std::vector<PinSide>& sides) {
  std::vector<PinMismatch> mismatches;
  for (std::size_t i = 1; i < sides.size(); ++i) {
    std::ranges::move(compare_pins(sides.front(), sides[i]), std::back_inserter(mismatches));
  }
  Json files = Json::array();
  for (const PinSide& side : sides) {
    files.push_back({{"path", side.name}, {"problems", side.entries.size()}});
  }
  Json rows = Json::array();
  for (const PinMismatch& one : mismatches) rows.push_back(to_json(one));
  const std::string count = count_text(std::ssize(sides.front().entries), "problem");
  print_result(invocation.json, "freeze",
               {{"same", mismatches.empty()}, {"files", files}, {"mismatches", rows}},
               mismatches.empty()
                   ? std::format("the same: {} run alike\n", count)
                   : std::format("{}not the same: {} in {}\n",
                                 mismatches_text(sides.front().name, mismatches),
                                 count_text(std::ssize(mismatches), "difference"), count));
  return mismatches.empty() ? ExitCode::kOk : ExitCode::kFailed;
}

struct FreezeOptions {
  ProblemOptions problems;
  std::string out;
  std::vector<std::string> compared;
  std::string checked;
};

// The problems of the options; without any, those with a winner in the user's database.
Result<std::vector<launch::Problem>> wanted_problems(const ChosenDevice& chosen,
                                                     cache::TuningStore& store,
                                                     const FreezeOptions& options) {
  if (names_problems(options.problems))
    return make_problems(options.problems, chosen.id.kind, "freeze");
  std::vector<launch::Problem> problems;
  const std::vector<cache::Winner> winners = store.winners();
  DORAJIT_TRY(store.readable());
  for (const cache::Winner& winner : winners) {
    if (!cache::is_same_model(winner.device, chosen.device->info().fingerprint)) continue;
    if (const auto problem = parse_key(winner.problem)) {
      problems.push_back(*problem);
    } else {
      print_note(std::format("{} is left out: {}", winner.problem, problem.error().message));
    }
  }
  if (!problems.empty()) return problems;
  return fail(StatusCode::kInvalidArgument,
              std::format("the tuning database has no winner for {}: tune first, or name problems "
                          "with --from FILE or --shape RxC",
                          chosen.device->info().fingerprint));
}

Result<ExitCode> freeze(const Invocation& invocation, const FreezeOptions& options) {
  if (invocation.json && options.out.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "freeze --json needs --out FILE, as standard output takes the document");
  }
  if (names_problems(options.problems))
    DORAJIT_TRY(check_problem_options(options.problems, "freeze"));
  const auto parts = make_untuned_engine(invocation);
  Engine& engine = *parts.engine;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
  DORAJIT_ASSIGN(const auto problems, wanted_problems(chosen, *parts.store, options));
  std::vector<cache::Pin> entries;
  Json rows = Json::array();
  {
    ProgressBar progress(!invocation.json, static_cast<int>(problems.size()));
    for (const launch::Problem& problem : problems) {
      progress.show(std::format("freezing {}", launch::to_text(problem)));
      DORAJIT_ASSIGN(const launch::ConfigAnswer answer, engine.prepare(problem, chosen.id));
      DORAJIT_ASSIGN(cache::Pin entry,
                     autotune::pin_of(problem, answer.config, *chosen.device, engine.kernels()));
      rows.push_back(to_json(entry));
      rows.back()["source"] = name(answer.origin);
      entries.push_back(std::move(entry));
      progress.advance();
    }
  }
  const std::string text = cache::to_pin_text(entries);
  const std::string count = count_text(std::ssize(entries), "problem");
  if (options.out.empty()) {
    print_bytes(text);
    print_note(std::format("{} on {}", count, chosen.device->info().name));
    return ExitCode::kOk;
  }
  DORAJIT_TRY(cache::write_output_file(options.out, text));
  return print_result(
      invocation.json, "freeze",
      {{"out", options.out},
       {"device", to_json(chosen.id, chosen.device->info())},
       {"problems", rows}},
      std::format("{} on {} written to {}\n", count, chosen.device->info().name, options.out));
}

Result<ExitCode> compare(const Invocation& invocation, const std::vector<std::string>& paths) {
  std::vector<PinSide> sides;
  for (const std::string& path : paths) {
    DORAJIT_ASSIGN(auto entries, cache::read_pin_file(path));
    sides.push_back({.name = path, .entries = std::move(entries)});
  }
  return report_comparison(invocation, sides);
}

Result<ExitCode> check(const Invocation& invocation, const std::string& path) {
  DORAJIT_ASSIGN(auto entries, cache::read_pin_file(path));
  const auto parts = make_untuned_engine(invocation);
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(*parts.engine, invocation.device));
  std::vector<cache::Pin> here;
  std::vector<Error> failures;
  {
    // Entries of other devices do not matter, unless there are none for this device: then that is
    // the difference.
    const std::string& fingerprint = chosen.device->info().fingerprint;
    std::vector<cache::Pin> mine;
    std::ranges::copy_if(entries, std::back_inserter(mine),
                         [&](const auto& entry) { return entry.device == fingerprint; });
    if (!mine.empty()) entries = mine;
    ProgressBar progress(!invocation.json, static_cast<int>(mine.size()));
    DORAJIT_ASSIGN(here, as_here(mine, chosen, *parts.engine, progress, failures));
  }
  for (const Error& failure : failures) print_error(failure);
  return report_comparison(invocation, {{.name = path, .entries = std::move(entries)},
                                        {.name = "this machine", .entries = std::move(here)}});
}

Result<ExitCode> run_freeze(const Invocation& invocation, const FreezeOptions& options) {
  const bool reads_files = !options.compared.empty() || !options.checked.empty();
  if (reads_files && names_problems(options.problems)) {
    return fail(StatusCode::kInvalidArgument,
                "freeze --compare and --check take all problems of their files; leave out the "
                "options that name problems");
  }
  if (!options.compared.empty()) return compare(invocation, options.compared);
  if (!options.checked.empty()) return check(invocation, options.checked);
  return freeze(invocation, options);
}

}  // namespace

void declare_pin(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<PinOptions>(
      app, commands, "pin", "Make a problem run one config, whatever was measured",
      "dorajit pin --shape 4096x14336 --config b2048-w8-r1-v8-u1-c0\n"
      "  dorajit pin --shape 4096x14336 --remove",
      run_pin);
  add_problem_options(command, options.problems);
  CLI::Option* config =
      command.add_option("--config", options.config, "The config, as `show` names it");
  config->option_text("CONFIG");
  command.add_flag("--remove", options.removes, "Let the problem run its winner again")
      ->excludes(config);
}

void declare_freeze(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<FreezeOptions>(
      app, commands, "freeze", "Write a lock file of what problems run; compare such files",
      "dorajit freeze --out train.lock\n"
      "  dorajit freeze --from problems.txt --out train.lock\n"
      "  dorajit freeze --compare rank0.lock rank1.lock",
      run_freeze);
  CLI::Option* out = command.add_option("--out", options.out, "Where to write [standard output]")
                         ->option_text("FILE");
  add_problem_options(command, options.problems);
  CLI::Option* compare =
      command.add_option("--compare", options.compared, "Say how two or more such files differ")
          ->option_text("FILE")
          ->expected(2, 4096);
  command.add_option("--check", options.checked, "Say how this machine differs from such a file")
      ->option_text("FILE")
      ->excludes(out)
      ->excludes(compare);
  compare->excludes(out);
}

}  // namespace dorajit::cli
