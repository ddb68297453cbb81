// Files that a kernel's source includes from folders.
#include "own_kernels/included_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <format>
#include <fstream>
#include <map>
#include <memory>
#include <string>

#include "cache/artifacts/artifact_files.h"
#include "kernel_templates/config.h"
#include "kernel_templates/program.h"
#include "own_kernels/kernel.h"
#include "runtime/base/artifact_store.h"
#include "tests/fakes/memory_artifact_store.h"
#include "tests/fakes/results.h"
#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::own_kernels {
namespace {

using kernels::ElementType;
using kernels::Operation;
using testing::HasSubstr;
using tests::Json;
using tests::made;
using tests::refusal_of;
using tests::swiglu;

class IncludedFilesTest : public testing::Test {
 protected:
  ~IncludedFilesTest() override { kernels::set_operation_source(nullptr); }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = directory_.file(name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  // A SwiGLU whose source begins with these lines.
  [[nodiscard]] Json including(const std::string& lines) const {
    Json json = swiglu();
    json["source"] = lines + "\n" + json["source"].get<std::string>();
    json["include"] = {directory_.path()};
    return json;
  }

  // The headers of its program, but for the library's own.
  static std::map<std::string, std::string> headers_of(const Operation& kernel) {
    const auto variant = variant_of(kernel, ElementType::kFloat16);
    const auto program = kernels::program_of(*variant, *kernels::parse_config("BLOCK=128-VEC=2"),
                                             kernels::DeviceKind::kCuda);
    std::map<std::string, std::string> headers;
    for (const auto& [name, text] : program.headers) {
      if (name != "dorajit/types.cuh") headers.emplace(name, text);
    }
    return headers;
  }

  cache::TemporaryDirectory directory_;
};

TEST_F(IncludedFilesTest, WhatIsIncludedIsPartOfTheKernel) {
  write("math/scale.h", "#pragma once\n#  include \"detail/two.h\" // beside it\n");
  write("math/detail/two.h", "#pragma once\n#include <math/scale.h>\n#include <nowhere.h>\n");
  write("unused.h", "unused");
  const auto headers = headers_of(made(including("#include <math/scale.h>")));
  EXPECT_THAT(headers, testing::UnorderedElementsAre(
                           testing::Pair("math/scale.h",
                                         "#pragma once\n#  include \"math/detail/two.h\" // beside "
                                         "it\n"),
                           testing::Pair("math/detail/two.h", testing::_)));
}

TEST_F(IncludedFilesTest, ChangeOfAnIncludedFileMakesAnotherKernel) {
  write("scale.h", "// 1\n");
  write("unused.h", "// 1\n");
  const Json json = including("#include \"scale.h\"");
  const Operation& first = made(json);
  write("unused.h", "// 2\n");
  EXPECT_EQ(&made(json), &first);
  write("scale.h", "// 2\n");
  EXPECT_NE(full_name(made(json)), full_name(first));
}

TEST_F(IncludedFilesTest, FoldersAreSearchedInTheirOrderAfterHeaders) {
  write("a/x.h", "// a\n");
  write("b/x.h", "// b\n");
  write("b/y.h", "// b\n");
  Json json = tests::with(including("#include <x.h>\n#include <y.h>"),
                          {{"/include", {directory_.file("a"), directory_.file("b")}}});
  EXPECT_EQ(headers_of(made(json)).at("x.h"), "// a\n");
  json["headers"] = {{"y.h", "// given\n"}};
  EXPECT_EQ(headers_of(made(json)).at("y.h"), "// given\n");
}

TEST_F(IncludedFilesTest, FilesOfEveryDefinitionOfAMacroAreFound) {
  write("root.h",
        "#ifdef A\n#  define SYSTEM a\n#else\n#define SYSTEM b // other\n#endif\n"
        "#define LOOP LOOP\n#define HEADER <ROOT/x.h>\n#define ROOT systems/SYSTEM\n"
        "#include LOOP\n#include HEADER\n");
  write("systems/a/x.h", "// a\n");
  write("systems/b/x.h", "#include <y.h>\n");
  write("y.h", "// y\n");
  const auto headers = headers_of(made(including("#include <root.h>")));
  EXPECT_EQ(headers.size(), 4U);
  EXPECT_TRUE(headers.contains("systems/a/x.h") && headers.contains("y.h"));
}

TEST_F(IncludedFilesTest, TwoFilesOfOneNameStayApart) {
  write("a/x.h", "#include \"x.h\"\n");
  write("b/z.h", "#include \"x.h\"\n");
  write("b/x.h", "// b\n");
  const Json json = tests::with(including("#include <x.h>\n#include <z.h>"),
                                {{"/include", {directory_.file("a"), directory_.file("b")}}});
  const auto headers = headers_of(made(json));
  EXPECT_EQ(headers.at("z.h"), std::format("#include \"{}\"\n", directory_.file("b/x.h")));
  EXPECT_EQ(headers.at(directory_.file("b/x.h")), "// b\n");
}

TEST_F(IncludedFilesTest, WhatCannotBeReadIsRefused) {
  Json json = tests::with(including(""), {{"/include", {directory_.file("nowhere")}}});
  EXPECT_THAT(refusal_of(json), HasSubstr("/nowhere\", which is no folder"));
  json["include"] = {1};
  EXPECT_THAT(refusal_of(json), HasSubstr("\"include\" is no text"));
  json["include"] = "cuda";
  EXPECT_THAT(refusal_of(json), HasSubstr("\"include\" is no list"));
  write("zero.h", std::string("a\0b", 3));
  EXPECT_THAT(refusal_of(including("#include <zero.h>")), HasSubstr("which has a zero byte"));
  write("large.h", std::string((4 << 20) + 1, ' '));
  EXPECT_THAT(refusal_of(including("#include <large.h>")), HasSubstr("/large.h, but "));
}

TEST_F(IncludedFilesTest, KeptKernelNeedsNoFolder) {
  const auto store = std::make_shared<tests::MemoryArtifactStore>();
  write("scale.h", "// of a kept kernel\n");
  const Json json = including("#include <scale.h>");
  const Operation& kernel = made(json);
  EXPECT_THAT(std::string(kernel.description), testing::Not(HasSubstr(directory_.path())));
  // As a process that has only the store: it finds the text there, or no kernel.
  EXPECT_THAT(tests::error_of(make_kernel(kernel.description, store.get())).message,
              HasSubstr("scale.h, which is not kept here"));
  for (const auto& [key, text] : kernel.attachments) keep_text(*store, std::string(key), text);
  const auto found = tests::value_of(make_kernel(kernel.description, store.get()));
  EXPECT_EQ(found, &kernel);
  // A text of another hash is not taken for it.
  store->insert(std::string(kernel.attachments[0].key), {.code = "// forged\n", .resources = {}});
  EXPECT_FALSE(make_kernel(kernel.description, store.get()));
}

TEST_F(IncludedFilesTest, KeptTextsAndDescriptionsCountAgainstTheLimit) {
  cache::ArtifactFiles files(directory_.file("cache"), 100'000);
  keep_description(files, "kernel@0", "{}");
  keep_text(files, std::string(32, 'a'), "text");
  EXPECT_TRUE(find_description(files, "kernel@0"));
  for (const char digit : {'b', 'c', 'd'}) {
    files.insert(std::string(32, digit), {.code = std::string(60'000, ' '), .resources = {}});
  }
  EXPECT_FALSE(find_description(files, "kernel@0"));
  EXPECT_FALSE(files.find(std::string(32, 'a')));
}

TEST_F(IncludedFilesTest, NativeHalvesNeedTheirHeader) {
  const Json json = tests::with(including(""), {{"/types/T", {"float32", "__half"}}});
  EXPECT_THAT(refusal_of(json), HasSubstr("cuda_fp16.h, which is in no folder of \"include\""));
  write("cuda_fp16.h", "struct __half {};\n");
  EXPECT_TRUE(headers_of(made(json)).contains("cuda_fp16.h"));
  const auto kept = Json::parse(made(json).description);
  EXPECT_EQ(kept["types"]["T"], Json({"float32", "__half"}));
}

TEST_F(IncludedFilesTest, ToolkitIsFoundByItsVariable) {
  write("toolkit/include/cuda_fp16.h", "struct __half {};\n");
  write("toolkit/include/cccl/cuda/barrier", "// a barrier\n");
  const tests::ScopedEnvironment saved{"CUDA_PATH"};
  ::setenv("CUDA_PATH", directory_.file("toolkit").c_str(), 1);
  const Json json = tests::with(including("#include <cuda/barrier>"), {{"/include", {"cuda"}}});
  EXPECT_EQ(headers_of(made(json)).at("cuda/barrier"), "// a barrier\n");
}

class IncludedFilesCompileTest : public IncludedFilesTest {
 protected:
  void SetUp() override {
    auto compiler = tests::nvrtc_here();
    if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
    compiler_ = *std::move(compiler);
  }

  void expect_compiles(const Json& json, ElementType type = ElementType::kFloat32) {
    const auto variant = variant_of(made(json), type);
    ASSERT_TRUE(variant);
    const auto artifact = compiler_->compile({.variant = *variant,
                                              .config = *kernels::parse_config("BLOCK=128-VEC=2"),
                                              .target = compile::cuda_target(9, 0)});
    EXPECT_TRUE(artifact) << artifact.error().message << artifact.error().log;
  }

  std::unique_ptr<compile::NvrtcCompiler> compiler_;
};

TEST_F(IncludedFilesCompileTest, FilesBesideEachOtherAreFound) {
  write("a/one.h", "#pragma once\n#include \"two.h\"\n#include \"../b/three.h\"\n");
  write("a/two.h", "#pragma once\n#include <cstddef>\nconstexpr std::size_t kTwo = 2;\n");
  write("b/three.h", "#pragma once\n#include <stdint.h>\nconstexpr int64_t kThree = 3;\n");
  expect_compiles(
      including("#include <a/one.h>\n#include <cstdint>\n#include <stdlib.h>\n"
                "static_assert(kTwo + kThree == 5 && sizeof(std::uint16_t) == 2);"));
}

TEST_F(IncludedFilesCompileTest, TypesOfTheToolkitServe) {
  Json json = tests::with(
      including("#include <cuda_fp16.h>\n#include <mma.h>\n#include <cooperative_groups.h>\n"
                "#include <cuda/barrier>\n#include <cub/block/block_reduce.cuh>"),
      {{"/include", {"cuda"}}});
  const auto kernel = make_kernel(json.dump());
  if (!kernel && kernel.error().message.contains("no toolkit was found")) {
    GTEST_SKIP() << kernel.error().message;
  }
  json["types"]["T"] = {"float32", "__half", "__nv_bfloat16"};
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBfloat16}) {
    expect_compiles(json, type);
  }
}

}  // namespace
}  // namespace dorajit::own_kernels
