#include "apps/cli/build/prewarm_report.h"

#include <algorithm>
#include <format>
#include <utility>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "kernel_templates/config.h"

namespace dorajit::cli {
namespace {

std::string targets_text(const std::vector<PrewarmedTarget>& targets) {
  Table table({{"arch"},
               {"problems", Align::kRight},
               {"kernels", Align::kRight},
               {"compiled", Align::kRight},
               {"there already", Align::kRight},
               {"failed", Align::kRight},
               {"code", Align::kRight}});
  for (const PrewarmedTarget& one : targets) {
    table.add_row({arch_text(one.target), std::to_string(one.problems.size()),
                   std::to_string(one.builds.size()), std::to_string(one.compiled),
                   std::to_string(one.from_cache), std::to_string(one.failed()),
                   bytes_text(one.code_bytes())});
  }
  return table.text();
}

std::string tuned_text(const std::vector<PrewarmedProblem>& tuned) {
  Table table({{"problem"}, {"from"}, {"config"}, {"over default", Align::kRight}});
  for (const PrewarmedProblem& one : tuned) {
    if (!one.answer) {
      table.add_row({to_text(one.problem), "failed"});
      continue;
    }
    const launch::ConfigAnswer& answer = *one.answer;
    table.add_row({to_text(one.problem), std::string(name(answer.origin)), to_text(answer.config),
                   one.is_tuned() ? ratio_text(answer.default_median_ns / answer.median_ns) : "-"});
  }
  return table.text();
}

Json target_json(const PrewarmedTarget& one) {
  return {{"arch", arch_text(one.target)},  {"problems", one.problems.size()},
          {"artifacts", one.builds.size()}, {"compiled", one.compiled},
          {"from_cache", one.from_cache},   {"failed", one.failed()},
          {"code_bytes", one.code_bytes()}};
}

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

std::string resources_text(const std::vector<PrewarmedTarget>& targets) {
  Table table({{"arch"},
               {"variant"},
               {"config"},
               {"registers", Align::kRight},
               {"shared", Align::kRight},
               {"stack", Align::kRight},
               {"spills", Align::kRight},
               {"code", Align::kRight},
               {"form"}});
  for (const PrewarmedTarget& target : targets) {
    for (const ArtifactBuild& build : target.builds) {
      std::vector<std::string> row = {arch_text(build.target), to_text(build.variant),
                                      to_text(build.config)};
      if (!build.artifact) {
        row.insert(row.end(), {"-", "-", "-", "-", "-", "failed"});
      } else {
        const ResourceUsage& used = build.artifact->resources;
        const std::string form = form_of(build.target, *build.artifact);
        const bool is_reported = form == "cubin";  // by ptxas alone
        for (const std::string& text :
             {std::to_string(used.registers), bytes_text(used.shared_bytes),
              bytes_text(used.stack_bytes),
              bytes_text(used.spill_store_bytes + used.spill_load_bytes)}) {
          row.push_back(is_reported ? text : "-");
        }
        row.insert(row.end(), {bytes_text(std::ssize(build.artifact->code)), form});
      }
      table.add_row(std::move(row));
    }
  }
  return table.text();
}

Json tuned_json(const PrewarmedProblem& one) {
  Json row = {{"problem", to_text(one.problem)}, {"tuned", one.is_tuned()}};
  if (!one.answer) {
    row["error"] = to_json(one.answer.error());
    return row;
  }
  row["source"] = name(one.answer->origin);
  row["config"] = to_text(one.answer->config);
  row["median_ns"] = one.answer->median_ns;
  row["default_median_ns"] = one.answer->default_median_ns;
  return row;
}

}  // namespace

std::int64_t PrewarmedTarget::failed() const {
  return std::ranges::count_if(builds, [](const ArtifactBuild& b) { return !b.artifact; });
}

std::int64_t PrewarmedTarget::code_bytes() const {
  std::int64_t bytes = 0;
  for (const ArtifactBuild& build : builds) {
    if (build.artifact) bytes += std::ssize(build.artifact->code);
  }
  return bytes;
}

bool PrewarmedProblem::is_tuned() const { return answer && is_exact(answer->origin); }

bool PrewarmReport::tunes(const PrewarmedTarget& target) const {
  return device && device->device->info().target == target.target;
}

std::int64_t PrewarmReport::spilling() const {
  std::int64_t spilling = 0;
  for (const PrewarmedTarget& one : targets) {
    spilling += std::ranges::count_if(one.builds, &ArtifactBuild::spills);
  }
  return spilling;
}

std::int64_t PrewarmReport::failed() const {
  std::int64_t failed =
      std::ranges::count_if(tuned, [](const PrewarmedProblem& p) { return !p.is_done(); });
  for (const PrewarmedTarget& one : targets) failed += one.failed();
  return failed;
}

Json prewarm_json(const PrewarmReport& report, const autotune::EngineParts& parts) {
  Json document = {{"targets", Json::array()}, {"artifacts", Json::array()}};
  std::int64_t artifacts = 0;
  std::int64_t compiled = 0;
  std::int64_t from_cache = 0;
  for (const PrewarmedTarget& one : report.targets) {
    document["targets"].push_back(target_json(one));
    for (const ArtifactBuild& build : one.builds) {
      document["artifacts"].push_back(build_json(build));
    }
    artifacts += std::ssize(one.builds);
    compiled += one.compiled;
    from_cache += one.from_cache;
  }
  document["device"] =
      report.device ? to_json(report.device->id, report.device->device->info()) : Json(nullptr);
  document["tuned"] = Json::array();
  for (const PrewarmedProblem& one : report.tuned) document["tuned"].push_back(tuned_json(one));
  document["summary"] = {{"artifacts", artifacts},       {"compiled", compiled},
                         {"from_cache", from_cache},     {"failed", report.failed()},
                         {"not_kept", report.not_kept},  {"spilling", report.spilling()},
                         {"tuned", report.tuned.size()}, {"seconds", report.seconds}};
  document["statistics"] = to_json(parts.engine->statistics());
  document["database"] = describe(*parts.store);
  return document;
}

std::string prewarm_text(const PrewarmReport& report, const autotune::EngineParts& parts,
                         bool with_resources) {
  std::string text = with_resources ? resources_text(report.targets) + "\n" : std::string();
  text += targets_text(report.targets);
  if (report.device) {
    text += std::format("\n{}\n{}\n", tuned_text(report.tuned), where_winners_are(*parts.store));
  }
  const std::string others =
      report.not_kept > 0 ? std::format(", except {}", report.not_kept) : std::string();
  return text + std::format("\nkernels are kept in {}{}; {:.1f} s\n",
                            parts.engine->settings().cache_dir, others, report.seconds);
}

}  // namespace dorajit::cli
