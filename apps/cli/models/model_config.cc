#include "apps/cli/models/model_config.h"

#include <algorithm>
#include <cstdint>
#include <format>
#include <iterator>
#include <string_view>
#include <utility>

#include "apps/cli/models/json_file.h"

namespace dorajit::cli {
namespace {

using kernels::ElementType;
using Projections = std::vector<Projection>;

constexpr std::string_view kLikeLlama[] = {
    "llama", "mistral",   "mistral3", "mixtral", "qwen2",   "qwen2_moe",
    "qwen3", "qwen3_moe", "gemma",    "gemma2",  "gemma3",  "gemma3_text",
    "olmo2", "granite",   "cohere",   "smollm3", "stablelm"};

void append(Projections& all, Projections more) {
  std::ranges::move(more, std::back_inserter(all));
}

Result<BlockSizes> read_block_sizes(const JsonObject& config) {
  BlockSizes sizes;
  DORAJIT_ASSIGN(sizes.hidden, config.required_size("hidden_size"));
  DORAJIT_ASSIGN(sizes.heads, config.required_size("num_attention_heads"));
  DORAJIT_ASSIGN(const auto key_value_heads, config.size("num_key_value_heads"));
  sizes.key_value_heads = key_value_heads.value_or(sizes.heads);
  DORAJIT_ASSIGN(const auto head_dim, config.size("head_dim"));
  if (!head_dim && sizes.hidden % sizes.heads != 0) {
    return fail(
        StatusCode::kInvalidArgument,
        std::format("{}: `hidden_size` {} is not a multiple of `num_attention_heads` {}, and "
                    "there is no `head_dim`",
                    config.path(), sizes.hidden, sizes.heads));
  }
  sizes.head_dim = head_dim.value_or(sizes.hidden / sizes.heads);
  return sizes;
}

// Experts as Mixtral names them, and as Qwen does.
Result<Projections> read_experts(const JsonObject& config, const BlockSizes& sizes) {
  DORAJIT_ASSIGN(const auto local_experts, config.size("num_local_experts"));
  DORAJIT_ASSIGN(const auto experts, config.size("num_experts"));
  Projections found;
  if (local_experts) {
    found = {{"block_sparse_moe.gate", *local_experts, sizes.hidden},
             {"block_sparse_moe.experts.0.w1", sizes.intermediate, sizes.hidden},
             {"block_sparse_moe.experts.0.w2", sizes.hidden, sizes.intermediate},
             {"block_sparse_moe.experts.0.w3", sizes.intermediate, sizes.hidden}};
  } else if (experts) {
    DORAJIT_ASSIGN(const std::int64_t width, config.required_size("moe_intermediate_size"));
    found = gated_projections("mlp.experts.0", width, sizes.hidden);
    found.push_back({"mlp.gate", *experts, sizes.hidden});
    DORAJIT_ASSIGN(const auto shared, config.size("shared_expert_intermediate_size"));
    if (shared) {
      append(found, gated_projections("mlp.shared_expert", *shared, sizes.hidden));
      found.push_back({"mlp.shared_expert_gate", 1, sizes.hidden});
    }
  }
  return found;
}

Result<Projections> read_like_llama(const JsonObject& config) {
  if (config.has("kv_lora_rank")) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `kv_lora_rank` means latent attention, whose layers are not known "
                            "here; give their sizes with --shape",
                            config.path()));
  }
  DORAJIT_ASSIGN(BlockSizes sizes, read_block_sizes(config));
  DORAJIT_ASSIGN(sizes.intermediate, config.required_size("intermediate_size"));
  Projections all = attention_projections(sizes);
  DORAJIT_ASSIGN(Projections experts, read_experts(config, sizes));
  // A model with experts of their own width may have blocks without experts too.
  if (!config.has("num_local_experts")) {
    append(all, gated_projections("mlp", sizes.intermediate, sizes.hidden));
  }
  append(all, std::move(experts));
  return all;
}

Result<Projections> read_phi3(const JsonObject& config) {
  DORAJIT_ASSIGN(const BlockSizes sizes, read_block_sizes(config));
  DORAJIT_ASSIGN(const std::int64_t intermediate, config.required_size("intermediate_size"));
  const std::int64_t queries = sizes.heads * sizes.head_dim;
  const std::int64_t keys = sizes.key_value_heads * sizes.head_dim;
  return Projections{{"self_attn.qkv_proj", queries + 2 * keys, sizes.hidden},
                     {"self_attn.o_proj", sizes.hidden, queries},
                     {"mlp.gate_up_proj", 2 * intermediate, sizes.hidden},
                     {"mlp.down_proj", sizes.hidden, intermediate}};
}

Result<Projections> read_gpt_neox(const JsonObject& config) {
  DORAJIT_ASSIGN(const std::int64_t hidden, config.required_size("hidden_size"));
  DORAJIT_ASSIGN(const std::int64_t intermediate, config.required_size("intermediate_size"));
  return Projections{{"attention.query_key_value", 3 * hidden, hidden},
                     {"attention.dense", hidden, hidden},
                     {"mlp.dense_h_to_4h", intermediate, hidden},
                     {"mlp.dense_4h_to_h", hidden, intermediate}};
}

Result<Projections> read_gpt2(const JsonObject& config) {
  DORAJIT_ASSIGN(const std::int64_t hidden, config.required_size("n_embd"));
  DORAJIT_ASSIGN(const auto own_inner, config.size("n_inner"));
  const std::int64_t inner = own_inner.value_or(4 * hidden);
  return Projections{{"attn.c_attn", 3 * hidden, hidden},
                     {"attn.c_proj", hidden, hidden},
                     {"mlp.c_fc", inner, hidden},
                     {"mlp.c_proj", hidden, inner}};
}

Result<Projections> read_projections(const JsonObject& config, std::string_view type) {
  if (type == "gpt2") return read_gpt2(config);
  if (type == "gpt_neox") return read_gpt_neox(config);
  if (type == "phi3") return read_phi3(config);
  DORAJIT_ASSIGN(Projections found, read_like_llama(config));
  if (!std::ranges::contains(kLikeLlama, type)) {
    print_note(
        std::format("{}: model type \"{}\" is unknown; its layers are assumed to be like "
                    "Llama's",
                    config.path(), type));
  }
  return found;
}

// "torch_dtype", or "dtype" as newer files have it.
Result<std::optional<ElementType>> read_type(const JsonObject& config) {
  for (const char* field : {"dtype", "torch_dtype"}) {
    DORAJIT_ASSIGN(const auto name, config.text(field));
    if (!name) continue;
    if (*name == "bfloat16") return ElementType::kBfloat16;
    if (*name == "float16") return ElementType::kFloat16;
    if (*name == "float32") return ElementType::kFloat32;
    if (*name == "float64") return ElementType::kFloat64;
    return fail(StatusCode::kInvalidArgument,
                std::format("{}: `{}` is \"{}\", which no kernel supports; name element types with "
                            "--type or --types",
                            config.path(), field, *name));
  }
  return std::nullopt;
}

}  // namespace

Result<ModelConfig> read_model_config(const std::string& path) {
  DORAJIT_ASSIGN(const JsonObject file, JsonObject::read(path, "config.json"));
  // Multimodal models keep the language model's fields in an object of their own.
  DORAJIT_ASSIGN(const auto text_config, file.object("text_config"));
  const JsonObject& config = text_config ? *text_config : file;
  DORAJIT_ASSIGN(const auto own_type, config.text("model_type"));
  DORAJIT_ASSIGN(const auto outer_type, file.text("model_type"));
  ModelConfig read{.path = file.path(), .model = {}};
  read.model.name = own_type ? *own_type : outer_type.value_or("");
  DORAJIT_ASSIGN(read.model.projections, read_projections(config, read.model.name));
  DORAJIT_ASSIGN(const auto vocabulary, config.size("vocab_size"));
  DORAJIT_ASSIGN(const auto hidden,
                 config.size(read.model.name == "gpt2" ? "n_embd" : "hidden_size"));
  if (vocabulary) read.only_by_name.push_back({"lm_head", *vocabulary, hidden.value_or(0)});
  DORAJIT_ASSIGN(read.type, read_type(config));
  if (!read.type && text_config) {
    DORAJIT_ASSIGN(read.type, read_type(file));
  }
  return read;
}

}  // namespace dorajit::cli
