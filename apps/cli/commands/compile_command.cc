#include "apps/cli/commands/compile_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <format>
#include <thread>

#include "apps/cli/build/artifact_builds.h"
#include "apps/cli/options/targets.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config_text.h"

namespace dorajit::cli {
namespace {

Json build_json(const ArtifactBuild& build) {
  Json row = {{"arch", arch_text(build.target)},
              {"variant", to_text(build.variant)},
              {"vector_width", build.vector_width},
              {"config", to_text(build.config)}};
  if (!build.artifact) {
    row["error"] = to_json(build.artifact.error());
    return row;
  }
  const ResourceUsage& used = build.artifact->resources;
  row["form"] = form_of(build.target, *build.artifact);
  row["code_bytes"] = build.artifact->code.size();
  row["registers"] = used.registers;
  row["shared_bytes"] = used.shared_bytes;
  row["stack_bytes"] = used.stack_bytes;
  row["spill_store_bytes"] = used.spill_store_bytes;
  row["spill_load_bytes"] = used.spill_load_bytes;
  return row;
}

std::string builds_text(const std::vector<ArtifactBuild>& builds) {
  Table table({{"arch"},
               {"config"},
               {"registers", Align::kRight},
               {"shared", Align::kRight},
               {"stack", Align::kRight},
               {"spills", Align::kRight},
               {"code", Align::kRight},
               {"form"}});
  for (const ArtifactBuild& build : builds) {
    if (!build.artifact) {
      table.add_row(
          {arch_text(build.target), to_text(build.config), "-", "-", "-", "-", "-", "failed"});
      continue;
    }
    const ResourceUsage& used = build.artifact->resources;
    // Only ptxas reports what a kernel needs.
    const bool reported = form_of(build.target, *build.artifact) == "cubin";
    const auto cell = [reported](std::string text) { return reported ? std::move(text) : "-"; };
    table.add_row(
        {arch_text(build.target), to_text(build.config), cell(std::to_string(used.registers)),
         cell(bytes_text(used.shared_bytes)), cell(bytes_text(used.stack_bytes)),
         cell(bytes_text(used.spill_store_bytes + used.spill_load_bytes)),
         bytes_text(std::ssize(build.artifact->code)), form_of(build.target, *build.artifact)});
  }
  return table.text();
}

}  // namespace

CLI::App* CompileCommand::declare(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("compile", "Compile kernels ahead, for any architecture; needs no GPU");
  command->add_option("--arch", archs_, "Architectures: sm_80, sm_90, ... or native-cpu")
      ->option_text("ARCH,...")
      ->delimiter(',')
      ->required();
  add_op_option(*command, variant_);
  add_variant_options(*command, variant_);
  command->add_option("--space", space_, "Which configs [DORAJIT_AUTOTUNE, else slim]")
      ->option_text("slim|comprehensive")
      ->check(CLI::IsMember({"slim", "comprehensive"}));
  command->add_option("--jobs", jobs_, "Compilations at a time [processors]")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--all-alignments", all_alignments_,
                    "Also for data that is aligned to an element only");
  command->add_flag("--refuse-spills", refuse_spills_, "Fail if a kernel spills registers");
  command->footer(
      "Example:\n  dorajit compile --arch sm_80,sm_90,sm_120 --type bf16 --refuse-spills");
  return command;
}

Result<ExitCode> CompileCommand::run(const Invocation& invocation) {
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(variant_));
  const auto parts = autotune::make_engine(invocation.settings);
  Engine& engine = *parts.engine;
  DORAJIT_TRY(check_cache_dir(engine.settings()));
  const bool comprehensive =
      space_.empty() ? invocation.settings.comprehensive : space_ == "comprehensive";
  const int processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));

  std::vector<ArtifactBuild> builds;
  for (const std::string& arch : archs_) {
    DORAJIT_ASSIGN(const compile::Target target, make_target(engine, arch));
    std::vector<int> widths = {kernels::widest_vector(variant, target.kind)};
    if (all_alignments_ && widths.front() > 1) widths.push_back(1);
    for (const int width : widths) {
      auto planned = plan_builds(
          target, variant, width, processors,
          comprehensive ? kernels::SpaceKind::kComprehensive : kernels::SpaceKind::kSlim);
      std::ranges::move(planned, std::back_inserter(builds));
    }
  }

  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar progress(!invocation.json, static_cast<int>(builds.size()));
    build_all(builds, engine.kernels(), jobs_ > 0 ? jobs_ : processors,
              [&progress](const ArtifactBuild& build) {
                progress.show(std::format("{} {}", arch_text(build.target), to_text(build.config)));
                progress.advance();
              });
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;

  const auto failed = std::ranges::count_if(builds, [](const auto& b) { return !b.artifact; });
  const auto spilling = std::ranges::count_if(builds, &ArtifactBuild::spills);
  for (const ArtifactBuild& build : builds) {
    if (!build.artifact) print_error(build.artifact.error());
  }
  const std::int64_t missing = count_not_kept(builds, engine.kernels());
  if (missing > 0) print_error(not_kept(missing, engine.settings()));
  const std::int64_t compiled = engine.statistics().compilations;
  const std::int64_t from_cache = engine.statistics().artifact_hits;
  if (invocation.json) {
    Json document = begin_document("compile");
    document["variant"] = to_text(variant);
    document["artifacts"] = Json::array();
    for (const ArtifactBuild& build : builds) document["artifacts"].push_back(build_json(build));
    document["summary"] = {{"artifacts", builds.size()}, {"compiled", compiled},
                           {"from_cache", from_cache},   {"failed", failed},
                           {"not_kept", missing},        {"spilling", spilling},
                           {"seconds", spent.count()}};
    print_document(document);
  } else {
    print(builds_text(builds));
    print(std::format(
        "\n{}: {} compiled, {} from the cache, {} failed, {} not kept, {} spilling, in {:.1f} s\n",
        count_text(std::ssize(builds), "artifact"), compiled, from_cache, failed, missing, spilling,
        spent.count()));
  }
  if (refuse_spills_ && spilling > 0) {
    print_error(
        {.code = StatusCode::kCompileError,
         .message = std::format("{} of {} kernels spill registers", spilling, builds.size()),
         .log = {}});
  }
  return failed > 0 || missing > 0 || (refuse_spills_ && spilling > 0) ? ExitCode::kFailed
                                                                       : ExitCode::kOk;
}

}  // namespace dorajit::cli
