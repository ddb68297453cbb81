#include "apps/cli/bench/demo_report.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <map>
#include <utility>

#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "kernel_templates/config.h"

namespace dorajit::cli {
namespace {

double geometric_mean(const std::vector<DemoRow>& rows, double (Comparison::*ratio)() const) {
  double sum = 0;
  for (const DemoRow& row : rows) sum += std::log((row.comparison.*ratio)());
  return rows.empty() ? 0 : std::exp(sum / static_cast<double>(rows.size()));
}

std::string rows_text(const std::vector<DemoRow>& rows) {
  Table table({{"rows x cols", Align::kRight},
               {"default config"},
               {"winner"},
               {"time", Align::kRight},
               {"over default", Align::kRight},
               {"over unfused", Align::kRight},
               {"GB/s", Align::kRight},
               {"of copy", Align::kRight},
               {"from"},
               {"layers"}});
  for (const DemoRow& row : rows) {
    const Comparison& comparison = row.comparison;
    table.add_row({std::format("{} x {}", comparison.sizes.front(), row.layer.out_features),
                   to_text(comparison.default_config), to_text(comparison.winner_config),
                   duration_text(comparison.winner.median_ns),
                   ratio_text(comparison.over_default()), ratio_text(comparison.over_unfused()),
                   bandwidth_text(comparison.bytes_per_ns()),
                   percent_text(comparison.share_of_copy()), std::string(name(row.answer.origin)),
                   to_text(row.layer.uses)});
  }
  table.add_row({"geometric mean", "", "", "",
                 ratio_text(geometric_mean(rows, &Comparison::over_default)),
                 ratio_text(geometric_mean(rows, &Comparison::over_unfused)), "",
                 percent_text(geometric_mean(rows, &Comparison::share_of_copy)), "", ""});
  return table.text();
}

std::string fewer_rows_note(const std::vector<DemoRow>& rows) {
  std::string note;
  for (const DemoRow& row : rows) {
    if (row.comparison.sizes.front() == row.layer.tokens) continue;
    note += std::format(
        "{} x {} was measured on {} rows: scratch memory is limited "
        "(DORAJIT_SCRATCH_BYTES)\n",
        row.layer.tokens, row.layer.out_features, row.comparison.sizes.front());
  }
  return note;
}

// Whether every config was a known winner, and nothing was compiled or tuned.
bool is_all_known(const DemoReport& report, const Engine& engine) {
  const Statistics& done = engine.statistics();
  return report.failed == 0 && done.compilations == 0 && done.trials == 0 &&
         std::ranges::all_of(report.rows, [](const DemoRow& row) {
           return row.answer.origin == launch::ConfigOrigin::kUserDatabase;
         });
}

std::string work_text(const DemoReport& report, const autotune::EngineParts& parts) {
  const Statistics& done = parts.engine->statistics();
  if (is_all_known(report, *parts.engine)) {
    return std::format("nothing compiled, nothing tuned: all {} came from {}\n",
                       count_text(std::ssize(report.rows), "winner"), parts.store->location());
  }
  return std::format("{}; {} compiled, {} taken from the artifact store; {} measured for {}\n",
                     where_winners_are(*parts.store), count_text(done.compilations, "kernel"),
                     done.artifact_hits.load(), count_text(done.trials, "trial"),
                     count_text(done.tuned_problems, "tuned problem"));
}

Json measurement_json(const autotune::Measurement& measured) {
  return {{"median_ns", measured.median_ns},
          {"mad_ns", measured.mad_ns},
          {"samples", measured.samples}};
}

Json row_json(const DemoRow& row) {
  const Comparison& comparison = row.comparison;
  Json layers = Json::array();
  for (const DemoLayer::Use& use : row.layer.uses) {
    layers.push_back({{"model", use.model}, {"projections", use.projections}});
  }
  Json standard = {{"config", to_text(comparison.default_config)}};
  standard.update(measurement_json(comparison.default_run));
  Json winner = {{"config", to_text(comparison.winner_config)}};
  winner.update(measurement_json(comparison.winner));
  return {{"problem", to_text(row.problem)},
          {"rows", row.layer.tokens},
          {"cols", row.layer.out_features},
          {"measured_rows", comparison.sizes.front()},
          {"operand_sets", comparison.sets},
          {"layers", std::move(layers)},
          {"source", name(row.answer.origin)},
          {"trials", row.answer.trials},
          {"default", std::move(standard)},
          {"winner", std::move(winner)},
          {"unfused", measurement_json(comparison.unfused)},
          {"copy", measurement_json(comparison.copy)},
          {"bytes", comparison.bytes},
          {"speedup_over_default", comparison.over_default()},
          {"speedup_over_unfused", comparison.over_unfused()},
          {"gigabytes_per_second", comparison.bytes_per_ns()},
          {"share_of_copy", comparison.share_of_copy()}};
}

}  // namespace

std::span<const DemoModel> demo_models() {
  static const std::vector<DemoModel> models = {
      {"Llama-3.1-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 14336}}},
      {"Qwen3-8B", {{"k/v", 1024}, {"q/o/down", 4096}, {"gate/up", 12288}}},
      {"Mistral-Small-24B", {{"k/v", 1024}, {"q", 4096}, {"o/down", 5120}, {"gate/up", 32768}}}};
  return models;
}

std::vector<DemoLayer> demo_layers(std::span<const DemoModel> models,
                                   std::span<const std::int64_t> tokens) {
  std::map<std::pair<std::int64_t, std::int64_t>, DemoLayer> by_size;
  for (const std::int64_t count : tokens) {
    for (const DemoModel& model : models) {
      for (const auto& [projections, out_features] : model.layers) {
        DemoLayer& layer = by_size[{count, out_features}];
        layer.tokens = count;
        layer.out_features = out_features;
        layer.uses.push_back({.model = model.name, .projections = projections});
      }
    }
  }
  std::vector<DemoLayer> layers;
  for (auto& [size, layer] : by_size) layers.push_back(std::move(layer));
  return layers;
}

std::string to_text(std::span<const DemoLayer::Use> uses) {
  std::string text;
  for (const auto& [model, projections] : uses) {
    text += std::format("{}{} {}", text.empty() ? "" : ", ", model, projections);
  }
  return text;
}

std::string demo_text(const DemoReport& report, const ChosenDevice& device,
                      const autotune::EngineParts& parts) {
  const device::DeviceInfo& info = device.device->info();
  std::string text =
      std::format("{} ({}), {}\n\n", info.name, device_text(device.id), to_text(report.variant));
  if (!report.rows.empty()) text += rows_text(report.rows) + "\n";
  text += fewer_rows_note(report.rows);
  if (report.failed > 0) text += count_text(report.failed, "problem") + " failed\n";
  text += work_text(report, parts);
  return text + std::format("{} in {:.1f} s\n", count_text(std::ssize(report.rows), "problem"),
                            report.seconds);
}

Json demo_json(const DemoReport& report, const ChosenDevice& device,
               const autotune::EngineParts& parts) {
  Json rows = Json::array();
  for (const DemoRow& row : report.rows) rows.push_back(row_json(row));
  return {{"device", to_json(device.id, device.device->info())},
          {"variant", to_text(report.variant)},
          {"problems", std::move(rows)},
          {"geometric_means",
           {{"speedup_over_default", geometric_mean(report.rows, &Comparison::over_default)},
            {"speedup_over_unfused", geometric_mean(report.rows, &Comparison::over_unfused)},
            {"share_of_copy", geometric_mean(report.rows, &Comparison::share_of_copy)}}},
          {"failed", report.failed},
          {"all_known", is_all_known(report, *parts.engine)},
          {"statistics", to_json(parts.engine->statistics())},
          {"database", describe(*parts.store)},
          {"seconds", report.seconds}};
}

}  // namespace dorajit::cli
