// --kernel and --with: the problems of own kernels by the command line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "apps/cli/options/problem_options.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/own_kernels/descriptions.h"

namespace dorajit::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class OwnKernelOptionsTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  static std::string refusal_of(const OwnKernelOptions& options,
                                const VariantOptions& types = {.type = "f32"}) {
    const auto problems = own_kernel_problems(options, types);
    EXPECT_FALSE(problems);
    return problems ? std::string() : problems.error().message;
  }

  cache::TemporaryDirectory folder_;
};

TEST_F(OwnKernelOptionsTest, EachWithIsAProblem) {
  const std::string path = write("swiglu.json", tests::swiglu().dump());
  const auto problems =
      own_kernel_problems({.file = path, .with = {"n=4096x12288", "n=1000"}}, {.type = "bf16"});
  ASSERT_TRUE(problems) << problems.error().message;
  ASSERT_EQ(problems->size(), 2U);
  EXPECT_THAT(to_text(problems->at(0)), EndsWith("/bf16,bf16,bf16/v8/n26"));
  EXPECT_THAT(to_text(problems->at(1)), EndsWith("/bf16,bf16,bf16/v8/n10"));
}

TEST_F(OwnKernelOptionsTest, TypesAreThoseOfTheTensors) {
  const OwnKernelOptions options = {.file = write("gather.json", tests::gather().dump()),
                                    .with = {"n=100,rows=32000,width=64"}};
  const auto problems = own_kernel_problems(options, {.types = {"i64", "bf16", "bf16"}});
  ASSERT_TRUE(problems) << problems.error().message;
  EXPECT_THAT(to_text(problems->at(0)), HasSubstr("/i64,bf16,bf16/"));
  EXPECT_THAT(refusal_of(options, {.type = "bf16"}), HasSubstr("--types gives one for each"));
  EXPECT_THAT(refusal_of(options, {.types = {"i64", "bf16"}}), HasSubstr("`gather` has 3 tensors"));
  EXPECT_THAT(refusal_of(options, {.types = {"i64", "int8", "bf16"}}), HasSubstr("\"int8\" is no"));
  EXPECT_THAT(refusal_of(options, {.types = {"i64", "bf16", "f32"}}),
              HasSubstr("the same for every"));
  EXPECT_THAT(refusal_of(options, {.types = {"bf16", "bf16", "bf16"}}),
              HasSubstr("one of int64, int32"));
  EXPECT_FALSE(own_kernel_problems(options, {.types = {"i64", "-", "bf16"}}));
}

TEST_F(OwnKernelOptionsTest, SizeBeyondItsTypeIsRefused) {
  tests::Json json = tests::swiglu();
  json["arguments"][3] = {"n", "int32"};
  const std::string path = write("swiglu.json", json.dump());
  EXPECT_THAT(refusal_of({.file = path, .with = {"n=2147483648"}}),
              HasSubstr("swiglu: 2147483648 `n`, but at most 2147483647 are served"));
  const auto problems =
      own_kernel_problems({.file = path, .with = {"n=2147483640"}}, {.type = "f32"});
  ASSERT_TRUE(problems) << problems.error().message;
  EXPECT_EQ(problems->at(0).largest_sizes()[0], 2147483640) << "no call has 2^31";
}

TEST_F(OwnKernelOptionsTest, SourceMayBeAFileBesideTheDescription) {
  tests::Json json = tests::swiglu();
  json["source"] = "swiglu.cu";
  const std::string path = write("swiglu.json", json.dump());
  EXPECT_THAT(refusal_of({.file = path, .with = {"n=1"}}), HasSubstr("swiglu.cu cannot be read"));
  write("swiglu.cu", tests::kSwigluSource);
  EXPECT_TRUE(own_kernel_problems({.file = path, .with = {"n=1"}}, {.type = "f32"}));
}

TEST_F(OwnKernelOptionsTest, WrongOptionsAreNamed) {
  const std::string path = write("swiglu.json", tests::swiglu().dump());
  EXPECT_THAT(refusal_of({.file = path, .with = {}}), HasSubstr("--with n=SIZE"));
  EXPECT_THAT(refusal_of({.file = path, .with = {"m=4"}}), HasSubstr("has no integer `m`"));
  EXPECT_THAT(refusal_of({.file = path, .with = {"n=4,n=4"}}), HasSubstr("`n` is given twice"));
  for (const char* text :
       {"n", "n=", "n=x", "n=-1", "n=4x", "n=1e3", "n=99999999999x99999999999"}) {
    EXPECT_THAT(refusal_of({.file = path, .with = {text}}), HasSubstr("is no NAME=SIZE")) << text;
  }
  EXPECT_THAT(refusal_of({.file = path, .with = {"n=4"}}, {.type = "f64"}),
              HasSubstr("--type f64"));
  EXPECT_THAT(refusal_of({.file = folder_.path(), .with = {"n=4"}}), HasSubstr("cannot be read"));
  EXPECT_THAT(refusal_of({.file = write("broken.json", "{"), .with = {"n=4"}}),
              HasSubstr("broken.json is not a JSON document: line 1, column 2: "));
}

}  // namespace
}  // namespace dorajit::cli
