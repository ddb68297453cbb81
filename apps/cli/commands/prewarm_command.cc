#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <format>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/cli/build/prewarm_plan.h"
#include "apps/cli/build/prewarm_report.h"
#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"
#include "runtime/compile/nvrtc_program.h"

namespace dorajit::cli {
namespace {

using kernels::DeviceKind;

Result<std::vector<compile::Target>> make_targets(Engine& engine,
                                                  const std::vector<std::string>& archs) {
  std::vector<compile::Target> targets;
  for (const std::string& arch : archs) {
    DORAJIT_ASSIGN(compile::Target target, make_target(engine, arch));
    if (!std::ranges::contains(targets, target)) targets.push_back(std::move(target));
  }
  return targets;
}

// The device to tune on: the one that --device names; else the best one without --arch, and the
// first GPU with it. The CPU of a build machine is tuned only if it is named.
Result<std::optional<ChosenDevice>> present_device(Engine& engine, const Invocation& invocation,
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

// A fault of a source is met for each config and architecture: each error once, and how often.
void print_errors(const PrewarmReport& report) {
  std::vector<std::pair<const Error*, int>> met;
  const auto add = [&met](const Error& error) {
    const auto what = [](const Error& of) {
      const std::string_view line = compile::first_error_line(of.log);
      return line.empty() ? std::string_view(of.message) : line;
    };
    const auto same = std::ranges::find_if(
        met, [&](const auto& other) { return what(*other.first) == what(error); });
    same == met.end() ? void(met.emplace_back(&error, 0)) : void(++same->second);
  };
  for (const PrewarmedTarget& one : report.targets) {
    for (const ArtifactBuild& build : one.builds) {
      if (!build.artifact) add(build.artifact.error());
    }
  }
  for (const PrewarmedProblem& one : report.tuned) {
    if (!one.answer) add(one.answer.error());
  }
  for (const auto& [error, others] : met) {
    print_error(*error);
    if (others > 0) print_note(std::format("the same error {} more times", others));
  }
}

// Counts what later processes will not find: the cache folder's disk was full, or its byte bound is
// too small. Called at the end: where not everything fits, kernels that were compiled last, by
// tuning too, have evicted those that were compiled first.
void check_what_is_kept(PrewarmReport& report, const autotune::EngineParts& parts) {
  launch::KernelCache& kernels = parts.engine->kernels();
  for (const PrewarmedTarget& one : report.targets) {
    report.not_kept += std::ranges::count_if(one.builds, [&](const ArtifactBuild& build) {
      return build.artifact && !kernels.is_kept(build.target, build.variant, build.config);
    });
  }
  const Settings& settings = parts.engine->settings();
  if (report.not_kept > 0) {
    print_error(
        StatusCode::kIoError,
        std::format("{} of these kernels {} not kept in {}: free some space there, let it be "
                    "written, set DORAJIT_CACHE_MAX_BYTES to more than {}, here and where they are "
                    "used, or give --cache-dir another folder",
                    report.not_kept, report.not_kept == 1 ? "is" : "are", settings.cache_dir,
                    settings.cache_max_bytes));
  }
  const bool has_tuned = std::ranges::any_of(report.tuned, [](const PrewarmedProblem& one) {
    return one.answer && one.answer->origin == launch::ConfigOrigin::kTuned;
  });
  report.keeps_winners = !has_tuned || check_winners_are_kept(*parts.store);
}

struct PrewarmArguments {
  std::vector<std::string> archs;
  PrewarmOptions problems;
  std::optional<double> seconds{};  // per problem; without it as the settings have it
  int configs = 0;                  // 0: as the settings have it
  int jobs = 0;                     // 0: one per processor
  std::string space;                // empty: as the settings have it
  bool compile_only = false;
  bool with_resources = false;
  bool refuse_spills = false;
  bool list_only = false;
};

Status list(const Invocation& invocation, const PrewarmProblems& problems,
            const std::vector<std::string>& archs) {
  for (const std::string& arch : archs) DORAJIT_TRY(check_arch(arch));
  // With a GPU's vector widths unless only a CPU is named, where they do not matter.
  const bool is_for_cpu = archs.empty() ? invocation.device == "cpu"
                                        : std::ranges::none_of(archs, [](const std::string& arch) {
                                            return compile::cuda_arch_number(arch).has_value();
                                          });
  DORAJIT_ASSIGN(const std::vector<launch::Problem> listed,
                 problems.on(is_for_cpu ? DeviceKind::kCpu : DeviceKind::kCuda));
  if (listed.empty()) {
    return fail(StatusCode::kInvalidArgument,
                "prewarm --list needs problems: --shape RxC, --from FILE or --kernel FILE.json");
  }
  Json keys = Json::array();
  std::string text;
  for (const launch::Problem& one : listed) {
    keys.push_back(to_text(one));
    text += to_text(one) + "\n";
  }
  print_result(invocation.json, "prewarm", {{"problems", keys}}, text);
  return {};
}

// A call is refused where the default config does not fit, and such sizes are not tuned.
Status check_default_fits(const launch::Problem& problem, const kernels::SpaceTraits& traits) {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return {};
  const kernels::Config standard = kernels::default_config(
      problem.variant, traits, problem.vector_width, problem.largest_sizes());
  const std::string why =
      used.why_config_does_not_fit(problem.variant, traits, problem.largest_sizes(), standard);
  if (why.empty()) return {};
  return fail(StatusCode::kUnsupported,
              std::format("{}: the default config {} does not fit its largest sizes, calls of "
                          "which are refused: {}",
                          to_text(problem), to_text(standard), why));
}

Result<PrewarmReport> plan(const PrewarmProblems& problems,
                           const std::vector<compile::Target>& targets,
                           const std::optional<ChosenDevice>& here,
                           const autotune::EngineParts& parts, const PrewarmArguments& options) {
  PrewarmReport report;
  for (const compile::Target& target : targets) {
    DORAJIT_ASSIGN(const std::vector<launch::Problem> wanted, problems.on(target.kind));
    const bool is_here = here && here->device->info().target == target;
    const device::DeviceInfo* info = is_here ? &here->device->info() : nullptr;
    const kernels::SpaceTraits traits = is_here ? info->traits : compile::traits_of(target);
    for (const launch::Problem& one : wanted) DORAJIT_TRY(check_default_fits(one, traits));
    if (target.kind == DeviceKind::kCpu && info == nullptr) {
      DORAJIT_ASSIGN(const device::Device* cpu, parts.engine->device({}));
      info = &cpu->info();
    }
    if (is_here && !options.compile_only && !wanted.empty()) report.device = here;
    const auto devices = devices_of(target, wanted, info, *parts.store);
    report.targets.push_back({.target = target,
                              .problems = wanted,
                              .builds = plan_prewarm(target, wanted, problems.spaces(target.kind),
                                                     devices, parts, options.configs)});
  }
  return report;
}

Result<ExitCode> run_prewarm(const Invocation& invocation, const PrewarmArguments& options) {
  DORAJIT_ASSIGN(const PrewarmProblems problems, PrewarmProblems::read(options.problems));
  if (options.list_only) {
    DORAJIT_TRY(list(invocation, problems, options.archs));
    return ExitCode::kOk;
  }
  const auto start = std::chrono::steady_clock::now();
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kFirstUse;  // as for `tune`
  settings.tune_seconds = options.seconds.value_or(settings.tune_seconds);
  if (!options.space.empty()) settings.comprehensive = options.space == "comprehensive";
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  if (engine.settings().cache_dir.empty()) {
    return fail(StatusCode::kIoError,
                "there is no cache folder to keep the kernels in: set DORAJIT_CACHE_DIR, or give "
                "--cache-dir, a folder that can be written");
  }
  DORAJIT_ASSIGN(std::vector<compile::Target> targets, make_targets(engine, options.archs));
  DORAJIT_ASSIGN(const auto here, present_device(engine, invocation, !options.archs.empty()));
  if (options.archs.empty()) targets.push_back(here->device->info().target);

  DORAJIT_ASSIGN(PrewarmReport report, plan(problems, targets, here, parts, options));
  // Then --from needs no --kernel here any more.
  for (const PrewarmedTarget& one : report.targets) {
    for (const launch::Problem& problem : one.problems) {
      engine.kernels().keep_description_of(*problem.variant.operation);
    }
  }
  {
    ProgressBar progress(!invocation.json, steps_of(report));
    compile_all(report, engine, options.jobs, progress);
    if (report.device) tune_all(report, engine, progress);
  }
  print_errors(report);
  check_what_is_kept(report, parts);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  report.seconds = spent.count();
  print_result(invocation.json, "prewarm", prewarm_json(report, parts),
               prewarm_text(report, parts, options.with_resources));
  const bool is_refused = options.refuse_spills && report.spilling() > 0;
  if (is_refused) {
    print_error(StatusCode::kCompileError,
                count_text(report.spilling(), "kernel") + " with register spills");
  }
  return report.is_complete() && !is_refused ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void declare_prewarm(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<PrewarmArguments>(
      app, commands, "prewarm",
      "Compile kernels ahead, for any architecture, and tune them on a GPU of this machine",
      "dorajit prewarm --arch sm_90,sm_100 --from problems.txt\n"
      "  dorajit prewarm --arch sm_80,sm_90 --op compose --type bf16 --refuse-spills\n"
      "  dorajit prewarm --arch sm_90 --kernel swiglu.json --with n=4096x12288",
      run_prewarm);
  command
      .add_option("--arch", options.archs,
                  "Architectures: sm_80, sm_90, ... or native-cpu [the device's]")
      ->option_text("ARCH,...")
      ->delimiter(',');
  add_prewarm_options(command, options.problems);
  command
      .add_option("--configs", options.configs,
                  "Configs per problem besides the winner [all that tuning tries]")
      ->option_text("N")
      ->check(CLI::Range(1, kMaxTuneCandidates));
  command.add_option("--jobs", options.jobs, "Compilations at a time [processors]")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  add_seconds_option(command, options.seconds);
  command
      .add_option("--space", options.space,
                  "The configs that are tried [DORAJIT_AUTOTUNE, else slim]")
      ->option_text("slim|comprehensive")
      ->check(CLI::IsMember({"slim", "comprehensive"}));
  command.add_flag("--compile-only", options.compile_only, "Tune nothing, whatever device is here");
  command.add_flag("--resources", options.with_resources,
                   "List registers, memory and spills of each kernel");
  command.add_flag("--refuse-spills", options.refuse_spills, "Fail if a kernel spills registers");
  command.add_flag("--list", options.list_only,
                   "Print the problems, as --from reads them, and end");
}

}  // namespace dorajit::cli
