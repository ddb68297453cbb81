#include "apps/cli/models/adapter_config.h"

#include <algorithm>
#include <format>
#include <string_view>
#include <utility>

#include "apps/cli/models/json_file.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/text_format.h"

namespace dorajit::cli {
namespace {

// Whether the target, the end of a module's path, is of this projection: "q_proj",
// "self_attn.q_proj" and "model.layers.0.self_attn.q_proj" are all.
bool names(std::string_view target, std::string_view path) {
  const auto ends_with_part = [](std::string_view text, std::string_view end) {
    return text.ends_with(end) &&
           (text.size() == end.size() || text[text.size() - end.size() - 1] == '.');
  };
  return ends_with_part(path, target) || ends_with_part(target, path);
}

bool is_pattern(std::string_view text) {
  return text.find_first_of("*|()[]\\^$+?{}") != std::string_view::npos;
}

}  // namespace

Result<AdapterConfig> read_adapter_config(const std::string& path) {
  DORAJIT_ASSIGN(const JsonObject file, JsonObject::read(path, "adapter_config.json"));
  AdapterConfig adapter{.path = file.path(), .rank = {}, .targets = {}};
  DORAJIT_ASSIGN(const auto kind, file.text("peft_type"));
  DORAJIT_ASSIGN(const auto is_dora, file.flag("use_dora"));
  if (kind.value_or("LORA") != "LORA" || !is_dora.value_or(false)) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{} is not of a DoRA adapter: `use_dora` is not true, so it uses none of these "
                    "kernels; leave --adapter out to prewarm every layer",
                    adapter.path));
  }
  DORAJIT_ASSIGN(adapter.rank, file.size("r"));
  DORAJIT_ASSIGN(auto targets, file.texts("target_modules"));
  if (!targets) return adapter;
  // PEFT matches a single text as a regular expression of Python.
  if (file.is_text("target_modules") &&
      (targets->front() == "all-linear" || is_pattern(targets->front()))) {
    if (targets->front() != "all-linear") {
      print_note(
          std::format("{}: `target_modules` is a pattern, so every layer is taken", adapter.path));
    }
    return adapter;
  }
  if (targets->empty()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `target_modules` names no layer", adapter.path));
  }
  adapter.targets = *std::move(targets);
  return adapter;
}

Result<Model> adapted_layers(const ModelConfig& config, const AdapterConfig& adapter) {
  if (adapter.targets.empty()) return config.model;
  std::vector<Projection> known = config.model.projections;
  known.insert(known.end(), config.only_by_name.begin(), config.only_by_name.end());
  Model adapted{.name = config.model.name, .projections = {}};
  for (const Projection& projection : known) {
    if (std::ranges::any_of(adapter.targets, [&](const std::string& target) {
          return names(target, projection.path);
        })) {
      adapted.projections.push_back(projection);
    }
  }
  std::vector<std::string> strangers = adapter.targets;
  std::erase_if(strangers, [&](const std::string& target) {
    return std::ranges::any_of(known, [&](const Projection& p) { return names(target, p.path); });
  });
  const std::string unknown = joined(strangers);
  if (adapted.projections.empty()) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: `target_modules` ({}) names no layer of {}, which has {}; give "
                    "sizes with --shape",
                    adapter.path, unknown, config.path, joined(known, ", ", &Projection::path)));
  }
  if (!unknown.empty()) {
    print_note(std::format("{}: skipped {}, which {} is not known to have", adapter.path, unknown,
                           config.path));
  }
  return adapted;
}

}  // namespace dorajit::cli
