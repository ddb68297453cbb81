#include "apps/cli/commands/prewarm_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <format>
#include <thread>
#include <utility>

#include "apps/cli/build/prewarm_plan.h"
#include "apps/cli/commands/tuning.h"
#include "apps/cli/options/targets.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

using kernels::DeviceKind;

Result<std::vector<compile::Target>> make_targets(Engine& engine,
                                                  const std::vector<std::string>& archs) {
  std::vector<compile::Target> targets;
  for (const std::string& arch : archs) {
    DORAJIT_ASSIGN(compile::Target target, make_device_target(engine, arch));
    if (target.kind == DeviceKind::kCuda && target.arch != arch) {
      print_note(std::format("{}: kernels are compiled for {}, as a process on such a GPU asks for",
                             arch, target.arch));
    }
    const bool is_known = std::ranges::any_of(
        targets, [&](const compile::Target& other) { return is_same(target, other); });
    if (!is_known) targets.push_back(std::move(target));
  }
  return targets;
}

// The device to tune on: the one that is named, or, if no architecture is, the best there is;
// beside architectures a GPU that is one of them. The CPU of a build machine is tuned only if it is
// named.
Result<std::optional<ChosenDevice>> device_at_hand(Engine& engine, const Invocation& invocation,
                                                   bool has_archs) {
  const bool is_wanted = !invocation.device.empty() || !has_archs;
  if (!is_wanted && engine.cuda_device_count() == 0) return std::nullopt;
  DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
  return chosen;
}

int steps_of(const PrewarmReport& report) {
  std::size_t steps = 0;
  for (const PrewarmedTarget& one : report.targets) {
    steps += one.builds.size() + (report.tunes(one) ? one.problems.size() : 0);
  }
  return static_cast<int>(steps);
}

void compile_all(PrewarmReport& report, Engine& engine, int jobs, ProgressBar& progress) {
  const int processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  for (PrewarmedTarget& one : report.targets) {
    const std::int64_t compiled = engine.statistics().compilations;
    const std::int64_t found = engine.statistics().artifact_hits;
    build_all(one.builds, engine.kernels(), jobs > 0 ? jobs : processors,
              [&progress](const ArtifactBuild& build) {
                progress.show(std::format("{} {}", arch_text(build.target), to_text(build.config)));
                progress.advance();
              });
    one.compiled = engine.statistics().compilations - compiled;
    one.from_cache = engine.statistics().artifact_hits - found;
  }
}

void tune_all(PrewarmReport& report, Engine& engine, ProgressBar& progress) {
  for (const PrewarmedTarget& one : report.targets) {
    if (!report.tunes(one)) continue;
    for (const launch::Problem& problem : one.problems) {
      progress.show(std::format("tuning {}", launch::to_text(problem)));
      report.tuned.push_back(
          {.problem = problem, .answer = engine.prepare(problem, report.device->id)});
      progress.advance();
    }
  }
}

void print_errors(const PrewarmReport& report) {
  for (const PrewarmedTarget& one : report.targets) {
    for (const ArtifactBuild& build : one.builds) {
      if (!build.artifact) print_error(build.artifact.error());
    }
  }
  for (const PrewarmedProblem& one : report.tuned) {
    if (!one.answer) print_error(one.answer.error());
  }
}

// What is not there for those who come later. Tuning may have compiled more than was planned, and
// what is made later than all fits into pushes out what was made first.
void look_for_what_is_kept(PrewarmReport& report, const autotune::EngineParts& parts) {
  for (const PrewarmedTarget& one : report.targets) {
    report.not_kept += count_not_kept(one.builds, parts.engine->kernels());
  }
  if (report.not_kept > 0) print_error(not_kept(report.not_kept, parts.engine->settings()));
  const bool has_tuned = std::ranges::any_of(report.tuned, [](const PrewarmedProblem& one) {
    return one.answer && one.answer->origin == launch::ConfigOrigin::kTuned;
  });
  report.keeps_winners = !has_tuned || parts.store->persistent();
  if (!report.keeps_winners) {
    print_error({.code = StatusCode::kIoError,
                 .message = "what was tuned is lost: " + parts.store->reason_not_persistent(),
                 .log = {}});
  }
}

}  // namespace

CLI::App* PrewarmCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "prewarm",
      "Compile what a model needs ahead, for any architecture, and tune it on a GPU here");
  command->add_option("--arch", archs_, "Architectures: sm_80, sm_90, ... or cpu [the device's]")
      ->option_text("ARCH,...")
      ->delimiter(',');
  add_prewarm_options(*command, options_);
  command
      ->add_option("--configs", configs_,
                   "Configs per problem besides the winner [all that tuning tries]")
      ->option_text("N")
      ->check(CLI::Range(1, kMaxTuneCandidates));
  command->add_option("--jobs", jobs_, "Compilations at a time [processors]")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  add_seconds_option(*command, seconds_);
  command->add_flag("--compile-only", compile_only_, "Tune nothing, whatever device is here");
  command->add_flag("--list", list_only_, "Print the problems, as --from reads them, and end");
  command->footer(
      "Example:\n"
      "  dorajit prewarm --arch sm_90,sm_100 --model ./Llama-3.1-8B --adapter ./my-dora\n"
      "  dorajit prewarm --model ./Llama-3.1-8B --list > problems.txt");
  return command;
}

Status PrewarmCommand::list(const Invocation& invocation, const PrewarmProblems& problems) const {
  for (const std::string& arch : archs_) DORAJIT_TRY(check_arch(arch));
  // The vectors of a GPU unless only a CPU is meant; on a CPU they say nothing.
  const bool is_for_cpu = archs_.empty()
                              ? invocation.device == "cpu"
                              : std::ranges::none_of(archs_, [](const std::string& arch) {
                                  return compile::cuda_arch_number(arch).has_value();
                                });
  DORAJIT_ASSIGN(const std::vector<launch::Problem> listed,
                 problems.on(is_for_cpu ? DeviceKind::kCpu : DeviceKind::kCuda));
  if (!invocation.json) {
    print(problem_file_text(problems, listed));
    return {};
  }
  Json document = begin_document("prewarm");
  document["model"] = model_json(problems);
  document["problems"] = Json::array();
  for (const launch::Problem& one : listed) document["problems"].push_back(to_text(one));
  print_document(document);
  return {};
}

Result<PrewarmReport> PrewarmCommand::plan(const PrewarmProblems& problems,
                                           const std::vector<compile::Target>& targets,
                                           const std::optional<ChosenDevice>& here,
                                           const autotune::EngineParts& parts) const {
  PrewarmReport report;
  for (const compile::Target& target : targets) {
    DORAJIT_ASSIGN(const std::vector<launch::Problem> wanted, problems.on(target.kind));
    const bool is_here = here && is_same(here->device->info().target, target);
    const device::DeviceInfo* info = is_here ? &here->device->info() : nullptr;
    if (target.kind == DeviceKind::kCpu && info == nullptr) {
      DORAJIT_ASSIGN(const device::Device* cpu, parts.engine->device({}));
      info = &cpu->info();
    }
    if (is_here && !compile_only_) report.device = here;
    const auto devices = devices_of(target, wanted, info, *parts.store);
    report.targets.push_back({.target = target,
                              .problems = wanted,
                              .builds = plan_prewarm(target, wanted, devices, parts, configs_)});
  }
  return report;
}

Result<ExitCode> PrewarmCommand::run(const Invocation& invocation) {
  DORAJIT_ASSIGN(const PrewarmProblems problems, PrewarmProblems::read(options_));
  if (list_only_) {
    DORAJIT_TRY(list(invocation, problems));
    return ExitCode::kOk;
  }
  const auto start = std::chrono::steady_clock::now();
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kFirstUse;  // as for `tune`
  settings.tune_seconds = seconds_.value_or(settings.tune_seconds);
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  DORAJIT_TRY(check_cache_dir(engine.settings()));
  DORAJIT_ASSIGN(std::vector<compile::Target> targets, make_targets(engine, archs_));
  DORAJIT_ASSIGN(const auto here, device_at_hand(engine, invocation, !archs_.empty()));
  if (archs_.empty()) targets.push_back(here->device->info().target);

  DORAJIT_ASSIGN(PrewarmReport report, plan(problems, targets, here, parts));
  {
    ProgressBar progress(!invocation.json, steps_of(report));
    compile_all(report, engine, jobs_, progress);
    if (report.device) tune_all(report, engine, progress);
  }
  print_errors(report);
  look_for_what_is_kept(report, parts);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  report.seconds = spent.count();
  if (invocation.json) {
    print_document(prewarm_json(report, problems, parts));
  } else {
    print(prewarm_text(report, parts));
  }
  return report.is_whole() ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace dorajit::cli
