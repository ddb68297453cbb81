// Own kernels through the real NVRTC, which needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <format>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "kernel_templates/config.h"
#include "kernel_templates/integer_types.h"
#include "kernel_templates/spaces.h"
#include "own_kernels/kernel.h"
#include "runtime/compile/nvrtc_compiler.h"
#include "tests/fakes/results.h"
#include "tests/own_kernels/made_kernels.h"
#include "tests/own_kernels/nvrtc_here.h"

namespace dorajit::own_kernels {
namespace {

using compile::CompileRequest;
using kernels::ElementType;
using testing::HasSubstr;
using tests::error_of;
using tests::Json;
using tests::swiglu;
using tests::value_of;
using tests::with;

constexpr const char* kConfig = "BLOCK=256-VEC=4";

class OwnKernelCompileTest : public testing::Test {
 protected:
  void SetUp() override {
    auto compiler = tests::nvrtc_here();
    if (!compiler) GTEST_SKIP() << "no NVRTC here: " << compiler.error().message;
    compiler_ = *std::move(compiler);
  }

  static CompileRequest request(const Json& json, ElementType type, const char* config) {
    return {.variant = tests::variant_of(tests::made(json), type),
            .config = kernels::parse_config(config).value(),
            .target = compile::cuda_target(9, 0)};
  }

  Result<Artifact> compile(const Json& json, ElementType type = ElementType::kFloat32,
                           const char* config = kConfig) {
    return compiler_->compile(request(json, type, config));
  }

  void expect_compiles(const Json& json, ElementType type = ElementType::kFloat32) {
    EXPECT_NE(value_of(compile(json, type)).code, "");
  }

  std::unique_ptr<compile::NvrtcCompiler> compiler_;
};

TEST_F(OwnKernelCompileTest, EntryIsItsSymbol) {
  const Artifact artifact = value_of(compile(swiglu()));
  EXPECT_THAT(artifact.code, testing::StartsWith("\x7f"
                                                 "ELF"));
  EXPECT_THAT(artifact.entry, testing::StartsWith("_Z6swigluILi256ELi4EE"));
  EXPECT_THAT(artifact.code, HasSubstr(artifact.entry));
  EXPECT_GT(artifact.resources.registers, 0);
}

TEST_F(OwnKernelCompileTest, EveryTypeCompiles) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBfloat16, ElementType::kFloat16}) {
    expect_compiles(swiglu(), type);
  }
}

// Each is a type of its own in CUDA C++: the source says which.
TEST_F(OwnKernelCompileTest, IntegerTypesAreThoseOfCudaCpp) {
  for (const kernels::IntegerType& type : kernels::kIntegerTypes) {
    Json json = swiglu();
    json["types"]["T"] = {type.name};
    json["arguments"][1][2] = std::format("{}[n]", type.name);
    json["source"] = std::format(
        "template <class A, class B> inline constexpr bool are_one = false;\n"
        "template <class A> inline constexpr bool are_one<A, A> = true;\n"
        "template <class ELEMENT, int N>\n"
        "__global__ void copy(const T* gate, const {0}* up, T* out, long long n) {{\n"
        "  static_assert(are_one<T, {0}> && are_one<ELEMENT, {0}> && sizeof(T) == {1});\n"
        "  out[threadIdx.x] = gate[threadIdx.x] & up[threadIdx.x];\n"
        "}}\n",
        type.cuda, type.bytes);
    json["entry"] = "copy<T, VEC>";
    // The alias of a type that is a template argument is left out.
    json["source"] = std::format("using T = {};\n", type.cuda) + json["source"].get<std::string>();
    expect_compiles(json, type.type);
  }
}

TEST_F(OwnKernelCompileTest, EachTensorHasItsType) {
  for (const ElementType ids : {kernels::kInt64, kernels::kInt32}) {
    const kernels::Variant variant{.operation = &tests::made(tests::gather()),
                                   .types = {ids, ElementType::kBfloat16, ElementType::kBfloat16}};
    const Artifact artifact =
        value_of(compiler_->compile({.variant = variant,
                                     .config = *kernels::parse_config("BLOCK=128"),
                                     .target = compile::cuda_target(9, 0)}));
    EXPECT_THAT(artifact.entry, HasSubstr(ids == kernels::kInt64 ? "gatherILi128EEvPKxPK"
                                                                 : "gatherILi128EEvPKiPK"));
  }
}

TEST_F(OwnKernelCompileTest, TypesAndParametersMayBeTemplateArguments) {
  Json json = swiglu();
  json["source"] =
      "namespace mine {\n"
      "template <class T, int N>\n"
      "__global__ void fill(const T* gate, const T* up, T* out, long long n) {\n"
      "  out[threadIdx.x * N + VEC - VEC] = static_cast<float>(gate[0]) + "
      "static_cast<float>(up[0]);\n"
      "}\n}\n";
  json["entry"] = "mine::fill<T, BLOCK / 2>";
  const Artifact artifact = value_of(compile(json, ElementType::kBfloat16));
  EXPECT_THAT(artifact.entry, HasSubstr("dorajit8bfloat16ELi128E"));
}

TEST_F(OwnKernelCompileTest, HeadersAndMacrosAreSeen) {
  Json json = swiglu();
  json["source"] =
      "#include \"lib/scale.cuh\"\n"
      "extern \"C\" __global__ void plain(const T* gate, const T* up, T* out, long long n) {\n"
      "  out[threadIdx.x] = scale(static_cast<float>(gate[0])) + BLOCK + VEC + EXTRA;\n"
      "}\n";
  json["entry"] = "plain";
  json["headers"] = {
      {"lib/scale.cuh", "__device__ inline float scale(float x) { return 2 * x; }\n"}};
  json["options"] = {"-DEXTRA=3", "--use_fast_math"};
  const Artifact artifact = value_of(compile(json));
  EXPECT_EQ(artifact.entry, "plain");
}

TEST_F(OwnKernelCompileTest, FunctionsAndLambdasNeedNoExecutionSpace) {
  const Json json = with(swiglu(), {{"/source", R"(
constexpr float kScale = 2;
template <typename F> auto apply(F f, float x) { return f(x); }
float doubled(float x) { return apply([](float value) { return kScale * value; }, x); }
)" + std::string(tests::kSwigluSource)}});
  expect_compiles(json);
}

TEST_F(OwnKernelCompileTest, TexturesAndTheCudaRuntimeAreDeclaredWhereTheyAreUsed) {
  const Json json = with(swiglu(), {{"/source", R"(
__device__ float fetched(cudaTextureObject_t texture, int i) { return tex1Dfetch<float>(texture, i); }
__device__ cudaError_t no_error() { return cudaSuccess; }
)" + std::string(tests::kSwigluSource)}});
  expect_compiles(json);
}

TEST_F(OwnKernelCompileTest, ErrorsNameTheLinesOfTheUsersSource) {
  Json json = swiglu();
  json["source"] = "// one\n// two\nint broken = nothing;\n" + std::string(tests::kSwigluSource);
  json["file"] = "kernels/swiglu.cu";
  const Error error = error_of(compile(json));
  EXPECT_EQ(error.code, StatusCode::kCompileError);
  EXPECT_THAT(error.log,
              HasSubstr("kernels/swiglu.cu(3): error: identifier \"nothing\" is undefined"));
  EXPECT_THAT(
      error.message,
      testing::AllOf(HasSubstr("config BLOCK=256-VEC=4 on sm_90: kernels/swiglu.cu(3): error: "),
                     testing::EndsWith("(3): error: identifier \"nothing\" is undefined")));
  // A process of its own cuts texts at a zero byte.
  const char* hint = getenv("DORAJIT_NVRTC");
  compile::NvrtcCompiler in_process(hint != nullptr ? hint : "", nullptr);
  EXPECT_EQ(error_of(in_process.compile(request(json, ElementType::kFloat32, kConfig))), error);
}

TEST_F(OwnKernelCompileTest, MacrosOfTheSourceDoNotHideParameters) {
  const Json json = with(swiglu(), {{"/source",
                                     "#define static_assert(...)\n#define decltype(...) int\n"
                                     "template <int, int> __global__ void swiglu(const T*) {}\n"}});
  EXPECT_THAT(error_of(compile(json)).message, HasSubstr("must have 4 parameters"));
}

// A launch hands over untyped bytes, so that such a kernel would read and write anything.
TEST_F(OwnKernelCompileTest, ParametersThatAreNotAsDescribedAreNamed) {
  const std::string wrong = "' must be of type '";
  const std::string actual = "dorajit_type_in_source=";
  for (const auto& [parameters, named, type] : std::initializer_list<std::array<std::string, 3>>{
           {"const T* gate, const T* up, T* out, int n", "'n" + wrong + "long long'", "int"},
           {"const T* gate, const T* up, T* out, double n", "'n" + wrong + "long long'", "double"},
           {"const T* gate, const T* up, T* out, Sizes n", "'n" + wrong + "long long'", "Sizes"},
           {"const T* gate, const T* up, const T* out, long long n", "'out" + wrong + "float*'",
            "const T *"},
           {"T* gate, const T* up, T* out, long long n", "'gate" + wrong + "const float*'", "T *"},
           {"const T* gate, const double* up, T* out, long long n", "'up" + wrong + "const float*'",
            "const double *"},
           {"const T* gate, T up, T* out, long long n", "'up" + wrong + "const float*'", "T"},
           {"const T* gate, const T* up, T* out", "must have 4 parameters", ""},
           {"const T* gate, const T* up, T* out, long long n, int m", "must have 4 parameters", ""},
           {"", "must have 4 parameters", ""},
       }) {
    const Json json = with(
        swiglu(), {{"/source", std::format("struct Sizes {{ long long n; }};\n"
                                           "template <int, int> __global__ void swiglu({}) {{}}\n",
                                           parameters)}});
    SCOPED_TRACE(parameters);
    const auto artifact = compile(json);
    ASSERT_FALSE(artifact);
    const Error& error = artifact.error();
    EXPECT_EQ(error.code, StatusCode::kCompileError);
    EXPECT_THAT(error.log, HasSubstr("the description of swiglu("));
    EXPECT_THAT(error.log, HasSubstr(named));
    EXPECT_THAT(error.message, HasSubstr(named));
    if (!type.empty()) EXPECT_THAT(error.message, HasSubstr(actual + type + "]"));
  }
}

TEST_F(OwnKernelCompileTest, ParametersOfTheSameMeaningAreServed) {
  for (const char* const kernels : {
           "template <int, int> __global__ void swiglu(const T* const __restrict__ gate, "
           "const volatile T* up, T* __restrict__ out, const long n) {} // no more lines",
           "template <int, int> __global__ void swiglu(const T*, const T*, volatile T*, "
           "unsigned long long) {}",
           "template <class, int> __global__ void swiglu(int) {}\n"
           "template <int, int> __global__ void swiglu(const T*, const T*, T*, unsigned long) {}",
       }) {
    for (const char* const standard : {"--std=c++11", "--std=c++20"}) {
      Json json = swiglu();
      json["source"] = kernels;
      json["options"] = {standard};
      expect_compiles(json);
    }
  }
}

TEST_F(OwnKernelCompileTest, ToolkitsTypesOf16BitsAreServed) {
  for (const auto& [type, name] : {std::pair{ElementType::kFloat16, "__half"},
                                   std::pair{ElementType::kBfloat16, "__nv_bfloat16"}}) {
    Json json = swiglu();
    json["source"] = std::format(
        "struct __align__(2) {0} {{ unsigned short bits; }};\n"
        "extern \"C\" __global__ void swiglu(const {0}* gate, const T* up, "
        "{0}* out, long long n) {{}}\n",
        name);
    json["entry"] = "swiglu";
    expect_compiles(json, type);
    EXPECT_FALSE(compile(json, ElementType::kFloat32));
  }
}

TEST_F(OwnKernelCompileTest, TargetMayBeSpecificToAnArchitecture) {
  Json json =
      with(swiglu(),
           {{"/source",
             "template <int, int> __global__ void swiglu(const T*, const T*, T*, long long) {\n"
             "  asm volatile(\"wgmma.fence.sync.aligned;\");\n}\n"}});
  EXPECT_FALSE(compile(json));
  json["options"] = {"--gpu-architecture=sm_90a", "--gpu-architecture=sm_100a"};
  expect_compiles(json);
  CompileRequest other = request(json, ElementType::kFloat32, kConfig);
  other.target = compile::cuda_target(8, 0);
  const Error refused = error_of(compiler_->compile(other));
  EXPECT_EQ(refused.code, StatusCode::kUnsupported);
  EXPECT_THAT(refused.message, HasSubstr("has no --gpu-architecture= for sm_80 among its options"));
}

TEST_F(OwnKernelCompileTest, NoErrorOfASourceIsOfTheComparison) {
  for (const std::string& head : {"template <int, int>", "extern \"C\""}) {
    Json json = swiglu();
    json["source"] = head + " __global__ void swiglu(const T*, const T*, T*, long long n) {\n";
    json["entry"] = head.contains('<') ? "swiglu<BLOCK, VEC>" : "swiglu";
    EXPECT_THAT(error_of(compile(json)).log, testing::Not(HasSubstr("dorajit_")));
  }
}

// Its key does not depend on such a file.
TEST_F(OwnKernelCompileTest, FileThatIsNoHeaderIsRefusedByName) {
  const std::string file = std::filesystem::current_path() / "dorajit_own_kernel_test.cuh";
  std::ofstream(file) << "// there is nothing wrong with it\n";
  for (const std::string& include :
       {std::string("#include \"dorajit_own_kernel_test.cuh\""), "#include \"" + file + "\"",
        "#include <" + file + ">", "#define FILE \"" + file + "\"\n#include FILE"}) {
    Json json = with(swiglu(), {{"/source", include + "\n" + tests::kSwigluSource}});
    const auto artifact = compile(json);
    ASSERT_FALSE(artifact) << include;
    EXPECT_THAT(artifact.error().message,
                HasSubstr("dorajit_own_kernel_test.cuh\" is not among its headers"));
    // The same from a header.
    json["source"] = std::string("#include \"mine.cuh\"\n") + tests::kSwigluSource;
    json["headers"] = {{"mine.cuh", include + "\n"}};
    EXPECT_FALSE(compile(json)) << include;
  }
  std::filesystem::remove(file);
}

// ptxas does not say it where it reports resources.
TEST_F(OwnKernelCompileTest, TooMuchSharedMemoryIsSaid) {
  std::string source = tests::kSwigluSource;
  source.insert(source.find('{') + 1,
                "__shared__ volatile float many[25600]; many[threadIdx.x] = n; "
                "__syncthreads(); if (many[n % 25600] < 0) return;");
  const auto artifact = compile(with(swiglu(), {{"/source", source}}));
  ASSERT_FALSE(artifact);
  EXPECT_THAT(artifact.error().message, HasSubstr("uses too much shared data"));
}

TEST_F(OwnKernelCompileTest, SourceCannotAskWhetherAFileExists) {
  const Json json =
      with(swiglu(),
           {{"/source", std::string("#if __has_include(\"/etc/passwd\")\n#error there\n#endif\n") +
                            tests::kSwigluSource}});
  expect_compiles(json);
}

// A million parentheses, which NVRTC parses recursively.
TEST_F(OwnKernelCompileTest, SourceThatCrashesNvrtcCostsOnlyTheCompilingProcess) {
  constexpr std::size_t kDeep = 1'000'000;
  const Json json =
      with(swiglu(), {{"/source", "const int deep = " + std::string(kDeep, '(') + "1" +
                                      std::string(kDeep, ')') + ";\n" + tests::kSwigluSource}});
  const Error crashed = error_of(compile(json));
  EXPECT_EQ(crashed.code, StatusCode::kInternal);
  EXPECT_THAT(crashed.message, HasSubstr("NVRTC crashed"));
  EXPECT_TRUE(compile(swiglu()));
}

// With a fake NVRTC.
class OwnKernelWorkerProcessTest : public OwnKernelCompileTest {
 protected:
  void SetUp() override {
    compiler_ = std::make_unique<compile::NvrtcCompiler>(DORAJIT_FAKE_NVRTC, nullptr,
                                                         compile::kCompileTimeLimit, DORAJITD);
  }
};

TEST_F(OwnKernelWorkerProcessTest, OutputIsThatOfTheCompiler) {
  const Artifact artifact = value_of(compile(swiglu()));
  EXPECT_EQ(artifact.entry, "swiglu<256, 4>");
  EXPECT_THAT(artifact.code, testing::StartsWith("\x7f"
                                                 "ELF, or so it says"));
}

// More often than abandoned threads are allowed in a process.
TEST_F(OwnKernelWorkerProcessTest, EndlessCompilationIsKilledAtTheDeadline) {
  const Json json = with(swiglu(), {{"/options", {"-DNEVER_ENDS=swiglu<256, 4>"}}});
  for (int i = 0; i < 2 * compile::kMaxAbandonedThreads; ++i) {
    CompileRequest endless = request(json, ElementType::kFloat32, kConfig);
    endless.deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    const Error killed = error_of(compiler_->compile(endless));
    EXPECT_EQ(killed.code, StatusCode::kCompileError);
    EXPECT_THAT(killed.message, HasSubstr("did not end within"));
  }
  EXPECT_TRUE(compile(json, ElementType::kFloat32, "BLOCK=256-VEC=1"));
}

TEST_F(OwnKernelWorkerProcessTest, MemoryIsLimited) {
  const Json json = with(swiglu(), {{"/options", {"-DTAKES_8_GIB"}}});
  EXPECT_FALSE(compile(json));
}

TEST_F(OwnKernelWorkerProcessTest, CodeThatWasCompiledWithoutAWorkerIsNotTaken) {
  compile::NvrtcCompiler in_process(DORAJIT_FAKE_NVRTC, nullptr);
  const CompileRequest wanted = request(swiglu(), ElementType::kFloat32, kConfig);
  EXPECT_NE(compiler_->options(wanted), in_process.options(wanted));
}

TEST_F(OwnKernelWorkerProcessTest, MissingWorkerIsNamed) {
  compile::NvrtcCompiler compiler(DORAJIT_FAKE_NVRTC, nullptr, compile::kCompileTimeLimit, "");
  const Error missing =
      error_of(compiler.compile(request(swiglu(), ElementType::kFloat32, kConfig)));
  EXPECT_EQ(missing.code, StatusCode::kNoCompiler);
  EXPECT_THAT(missing.message, HasSubstr("set DORAJIT_WORKER"));
}

TEST_F(OwnKernelCompileTest, KeysDifferByConfigTypeSourceAndOptions) {
  const auto key = [&](const Json& json, ElementType type, const char* config) {
    const CompileRequest wanted = request(json, type, config);
    return compile::artifact_key(wanted, compiler_->options(wanted), "NVRTC");
  };
  const auto source = std::string(tests::kSwigluSource) + "\n";
  std::set<std::string> keys = {key(swiglu(), ElementType::kFloat32, "BLOCK=256-VEC=1"),
                                key(swiglu(), ElementType::kFloat32, "BLOCK=256-VEC=2"),
                                key(swiglu(), ElementType::kBfloat16, "BLOCK=256-VEC=1")};
  for (const auto& change : std::vector<tests::Change>{
           {"/source", source}, {"/headers", {{"a.cuh", ""}}}, {"/options", {"-DX"}}}) {
    keys.insert(key(with(swiglu(), {change}), ElementType::kFloat32, "BLOCK=256-VEC=1"));
  }
  EXPECT_EQ(keys.size(), 6U);
  keys.insert(key(swiglu(), ElementType::kFloat32, "BLOCK=256-VEC=1"));
  EXPECT_EQ(keys.size(), 6U);
}

}  // namespace
}  // namespace dorajit::own_kernels
