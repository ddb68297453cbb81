// What `dorajit prewarm --list` makes of the files of models and adapters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/apps/cli/cli_sandbox.h"

namespace dorajit::test {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

std::string model(const std::string& name) {
  return DORAJIT_SOURCE_DIR "/tests/apps/cli/models/" + name;
}

class CliModelFiles : public testing::Test {
 protected:
  nlohmann::json list(std::vector<std::string> options) {
    options.insert(options.begin(), {"prewarm", "--list", "--json"});
    const CliResult result = sandbox_.run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    notes_ = result.err;
    return result.document();
  }

  std::map<std::string, std::int64_t> layers(const std::vector<std::string>& options) {
    std::map<std::string, std::int64_t> found;
    const auto document = list(options);
    for (const auto& layer : document["model"]["layers"]) {
      found[layer["path"]] = layer["out_features"];
    }
    return found;
  }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = sandbox_.folder() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // The file of a model, with a field as it is given there.
  std::string changed(const std::string& name, const std::string& field, nlohmann::json value) {
    std::ifstream file(model(name) + "/config.json");
    auto config = nlohmann::json::parse(file);
    config[field] = std::move(value);
    return write("config.json", config.dump());
  }

  CliResult refused(const std::vector<std::string>& options, int exit_code = kUsage) {
    std::vector<std::string> arguments = {"prewarm", "--list"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    CliResult result = sandbox_.run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, StartsWith("dorajit: error: "));
    return result;
  }

  CliSandbox sandbox_;
  std::string notes_;
};

TEST_F(CliModelFiles, LlamaHasGroupedQueries) {
  EXPECT_THAT(layers({"--model", model("llama")}),
              UnorderedElementsAre(Pair("self_attn.q_proj", 4096), Pair("self_attn.k_proj", 1024),
                                   Pair("self_attn.v_proj", 1024), Pair("self_attn.o_proj", 4096),
                                   Pair("mlp.gate_proj", 14336), Pair("mlp.up_proj", 14336),
                                   Pair("mlp.down_proj", 4096)));
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(CliModelFiles, QwenHasItsOwnHeadDimension) {
  const auto found = layers({"--model", model("qwen") + "/config.json"});
  EXPECT_THAT(found, Contains(Pair("self_attn.q_proj", 2048)));
  EXPECT_THAT(found, Contains(Pair("self_attn.k_proj", 1024)));
  EXPECT_THAT(found, Contains(Pair("self_attn.o_proj", 1024)));
  EXPECT_THAT(found, Contains(Pair("mlp.up_proj", 3072)));
}

TEST_F(CliModelFiles, ExpertsHaveTheirOwnWidth) {
  const auto found = layers({"--model", model("qwen_moe")});
  EXPECT_THAT(found, Contains(Pair("mlp.experts.0.gate_proj", 768)));
  EXPECT_THAT(found, Contains(Pair("mlp.experts.0.down_proj", 2048)));
  EXPECT_THAT(found, Contains(Pair("mlp.gate", 128)));
  EXPECT_THAT(found, Contains(Pair("self_attn.k_proj", 512)));
  const std::string mixtral = changed("llama", "num_local_experts", 8);
  EXPECT_THAT(layers({"--model", mixtral}), Contains(Pair("block_sparse_moe.experts.0.w3", 14336)));
}

TEST_F(CliModelFiles, Gpt2HasItsOwnLayerNames) {
  EXPECT_THAT(layers({"--model", model("gpt2")}),
              UnorderedElementsAre(Pair("attn.c_attn", 2304), Pair("attn.c_proj", 768),
                                   Pair("mlp.c_fc", 3072), Pair("mlp.c_proj", 768)));
}

TEST_F(CliModelFiles, TextConfigOfAMultimodalModelIsRead) {
  std::ifstream file(model("qwen") + "/config.json");
  const nlohmann::json outer = {{"model_type", "seer"},
                                {"text_config", nlohmann::json::parse(file)}};
  EXPECT_THAT(layers({"--model", write("config.json", outer.dump())}),
              Contains(Pair("self_attn.q_proj", 2048)));
}

TEST_F(CliModelFiles, ProblemsAreOfADoraLayer) {
  const auto document = list({"--model", model("llama"), "--tokens", "1,512"});
  const std::set<std::string> problems(document["problems"].begin(), document["problems"].end());
  // Three widths and two numbers of tokens: four operations with them, one more with and without a
  // bias and with and without what training needs, one in two forms, one on a row, two kinds of
  // gain. Three gated activations, whose backward pass alone has gains.
  EXPECT_EQ(problems.size(), (3 * (4 + 4 + 2) * 2 + 3) * 2 + 3 * (3 * 2) * (1 + 2));
  for (const char* expected :
       {"compose/bf16,bf16,f32,bf16/v8/c4096/r0", "compose/bf16,bf16,bf16,bf16/v8/c1024/r9",
        "compose_inner/bf16,bf16,f32,bf16,bf16/v8/c14336/r9",
        "backward/bf16,bf16,f32,bf16,bf16,f32/v8/c4096/r9",
        "compose_residual/bf16,bf16,f32,-,bf16,-/v8/c4096/r0",
        "compose_residual/bf16,bf16,f32,bf16,bf16,bf16/v8/c4096/r9",
        "magnitude_backward/bf16,bf16,f32,f32,-,bf16,f32/v8/c4096/r9",
        "magnitude_backward/bf16,bf16,f32,f32,bf16,bf16,f32/v8/c1024/r0",
        "norm_assembly/f32,f32,f32,bf16/v4/c14336/r0",
        "norm_assembly/bf16,bf16,bf16,bf16/v8/c1024/r0"}) {
    EXPECT_TRUE(problems.contains(expected)) << expected;
  }
  EXPECT_FALSE(problems.contains("norm_assembly/f32,f32,f32,bf16/v4/c14336/r9"));
}

TEST_F(CliModelFiles, NormsFollowFromWeightsAndRank) {
  const auto norms = [this](std::vector<std::string> options) {
    options.insert(options.end(), {"--op", "weight_norm"});
    return list(std::move(options))["problems"].get<std::vector<std::string>>();
  };
  const auto of_adapter = norms({"--model", model("llama"), "--adapter", model("adapter")});
  // Three layers; norm, its square, or the gain and its divisor; an adapter in f32, and one like
  // the weight.
  EXPECT_EQ(of_adapter.size(), 3 * 3 * 2);
  for (const char* expected : {"weight_norm/bf16,f32,f32,-,f32,-,-,-/v4/i4096/k16/o12",
                               "weight_norm/bf16,bf16,bf16,-,f32,-,-,-/v8/i4096/k16/o10",
                               "weight_norm/bf16,f32,f32,-,-,f32,-,-/v4/i14336/k16/o12",
                               "weight_norm/bf16,bf16,bf16,bf16,-,-,f32,f32/v8/i4096/k16/o12"}) {
    EXPECT_THAT(of_adapter, Contains(expected));
  }
  EXPECT_THAT(norms({"--model", model("llama"), "--rank", "8,64"}),
              IsSupersetOf({"weight_norm/bf16,f32,f32,-,f32,-,-,-/v4/i4096/k8/o14",
                            "weight_norm/bf16,f32,f32,-,f32,-,-,-/v4/i4096/k64/o14"}));
  EXPECT_THAT(refused({"--model", model("llama"), "--op", "weight_norm"}).err,
              HasSubstr("--rank or --adapter"));
}

TEST_F(CliModelFiles, LowRankCompositionsFollowFromTokensAndRank) {
  const auto listed = list({"--model", model("llama"), "--op", "compose_low_rank", "--rank", "16",
                            "--tokens", "1,512"})["problems"]
                          .get<std::vector<std::string>>();
  for (const char* expected :
       {"compose_low_rank/bf16,bf16,bf16,f32,-,bf16,-/v8/c4096/k16/r0",
        "compose_low_rank/bf16,bf16,bf16,bf16,bf16,bf16,bf16/v8/c14336/k16/r9"}) {
    EXPECT_THAT(listed, Contains(expected));
  }
}

TEST_F(CliModelFiles, TypesAreOfTheModelUnlessGiven) {
  const auto of_model = list({"--model", model("qwen"), "--op", "compose", "--tokens", "1"});
  for (const auto& problem : of_model["problems"]) {
    EXPECT_THAT(problem.get<std::string>(), StartsWith("compose/f16,f16,"));
  }
  const auto named =
      list({"--model", model("qwen"), "--op", "compose", "--tokens", "1", "--type", "f32"});
  ASSERT_THAT(named["problems"], Not(IsEmpty()));
  for (const auto& problem : named["problems"]) {
    EXPECT_THAT(problem.get<std::string>(), StartsWith("compose/f32,f32,f32,f32/v4/"))
        << "the gain is of the same type anyway";
  }
  EXPECT_THAT(refused({"--model", model("qwen"), "--types", "f32,f32,f32,f32"}).err,
              HasSubstr("name it with --op"));
}

TEST_F(CliModelFiles, AdapterSelectsItsLayers) {
  const auto adapter = [&](const std::string& targets) {
    return write("adapter_config.json", R"({"peft_type":"LORA","use_dora":true,"r":8,)" +
                                            ("\"target_modules\":" + targets + "}"));
  };
  const auto picked =
      list({"--model", model("llama"), "--adapter", model("adapter"), "--tokens", "1"});
  EXPECT_EQ(picked["model"]["rank"], 16);
  EXPECT_EQ(picked["model"]["layers"].size(), 3);
  EXPECT_THAT(layers({"--model", model("llama"), "--adapter", model("adapter")}),
              UnorderedElementsAre(Pair("self_attn.q_proj", 4096), Pair("self_attn.k_proj", 1024),
                                   Pair("mlp.down_proj", 4096)));
  for (const char* all : {"\"all-linear\"", "null", R"(".*\\.(q|v)_proj")"}) {
    EXPECT_EQ(layers({"--model", model("llama"), "--adapter", adapter(all)}).size(), 7) << all;
  }
  EXPECT_THAT(layers({"--model", model("llama"), "--adapter",
                      adapter(R"(["model.layers.7.self_attn.v_proj", "lm_head"])")}),
              UnorderedElementsAre(Pair("self_attn.v_proj", 1024), Pair("lm_head", 128256)));
  EXPECT_THAT(layers({"--model", model("llama"), "--adapter", adapter(R"(["q_proj", "wqkv"])")}),
              ElementsAre(Pair("self_attn.q_proj", 4096)));
  EXPECT_THAT(notes_, HasSubstr("skipped wqkv"));
  EXPECT_THAT(refused({"--model", model("llama"), "--adapter", adapter(R"(["roj"])")}).err,
              HasSubstr("`target_modules` (roj) names no layer"));
  EXPECT_THAT(refused({"--model", model("llama"), "--adapter", adapter("[7]")}).err,
              HasSubstr("`target_modules` is an array; it must be a text or a list of texts"));
  EXPECT_THAT(
      refused({"--model", model("llama"), "--adapter",
               write("adapter_config.json", R"({"peft_type":"LORA","r":8,"use_dora":false})")})
          .err,
      HasSubstr("is not of a DoRA adapter"));
}

TEST_F(CliModelFiles, InvalidFilesAreExplained) {
  using nlohmann::json;
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {write("broken.json", "{\"hidden_size\": 4096,"), "broken.json is not a JSON document: "},
      {write("empty.json", ""), "empty.json is not a JSON document: "},
      {write("list.json", "[1, 2]"), "list.json has a JSON array instead of an object"},
      {write("deep.json", std::string(100'000, '[') + std::string(100'000, ']')),
       "more than 64 levels of brackets"},
      {write("bare.json", "{\"model_type\":\"llama\"}"), "bare.json: `hidden_size` is missing"},
      {write("other.json", R"({"model_type":"x","hidden_size":64,"num_attention_heads":4})"),
       "`intermediate_size` is missing"},
  };
  for (const auto& one : cases) {
    EXPECT_THAT(refused({"--model", one.file}).err, HasSubstr(one.message));
  }
  const struct {
    const char* field;
    json value;
    const char* message;
  } fields[] = {
      {"hidden_size", "4096", "`hidden_size` is \"4096\"; it must be a whole number from 1 to"},
      {"hidden_size", 4096.5, "`hidden_size` is 4096.5; it must be"},
      {"hidden_size", -1, "`hidden_size` is -1; it must be"},
      {"hidden_size", 18446744073709551615ULL, "`hidden_size` is 18446744073709551615; it must be"},
      {"hidden_size", 4095, "`hidden_size` 4095 is not a multiple of `num_attention_heads` 32"},
      {"num_attention_heads", 0, "`num_attention_heads` is 0; it must be"},
      {"intermediate_size", {1, 2}, "`intermediate_size` is an array; it must be"},
      {"head_dim", true, "`head_dim` is true; it must be"},
      {"model_type", 7, "`model_type` is 7; it must be a text"},
      {"torch_dtype", "int8", "`torch_dtype` is \"int8\", which no kernel supports"},
      {"kv_lora_rank", 512, "latent attention"},
      {"text_config", 1, "`text_config` is 1; it must be an object"},
  };
  for (const auto& one : fields) {
    EXPECT_THAT(refused({"--model", changed("llama", one.field, one.value)}).err,
                HasSubstr(one.message));
  }
  const std::string pipe = sandbox_.folder() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(refused({"--model", pipe}, kFailed).err, HasSubstr("it is not a regular file"));
  const auto large = write("large.json", "{" + std::string(std::size_t{9} << 20, ' ') + "}");
  EXPECT_THAT(refused({"--model", large}, kFailed).err,
              HasSubstr("large.json: it is larger than 8388608 bytes"));
  EXPECT_THAT(refused({"--model", sandbox_.folder() + "/nowhere"}, kFailed).err,
              HasSubstr("No such file or directory"));
  EXPECT_EQ(sandbox_.run({"prewarm", "--list", "--json", "--model", cases[0].file})
                .document()["error"]["code"],
            "INVALID_ARGUMENT");
}

TEST_F(CliModelFiles, UnknownModelIsReadAsLlama) {
  EXPECT_EQ(layers({"--model", changed("llama", "model_type", "new_model")}).size(), 7);
  EXPECT_THAT(notes_, HasSubstr("model type \"new_model\" is unknown"));
}

TEST_F(CliModelFiles, NeedOneSourceOfProblems) {
  EXPECT_THAT(refused({}).err, HasSubstr("prewarm needs problems: one of --model FILE"));
  EXPECT_THAT(refused({"--shape", "4x4", "--from", "x"}).err, HasSubstr("prewarm needs problems"));
  EXPECT_THAT(refused({"--shape", "4x4", "--model", "x"}).err, HasSubstr("excludes"));
  EXPECT_THAT(refused({"--adapter", "x"}).err, HasSubstr("--adapter requires --model"));
}

// What is listed is what `tune --from` reads.
TEST_F(CliModelFiles, ListIsAFileOfProblems) {
  const CliResult listed = sandbox_.run({"prewarm", "--list", "--model", model("llama")});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  const auto again = list({"--from", write("problems.txt", listed.out)});
  EXPECT_EQ(again["problems"], list({"--model", model("llama")})["problems"]);
}

}  // namespace
}  // namespace dorajit::test
