// Creating an engine from options and environment variables, and its statistics.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class EngineCreateTest : public CAbiTest {
 protected:
  EngineCreateTest() { options_.struct_size = sizeof options_; }

  void expect_refused(const std::string& part) { expect_refusal(create_engine(&options_), part); }

  dorajit_engine_options options_{};
};

TEST_F(EngineCreateTest, NullOptionsAreAccepted) { EXPECT_EQ(create_engine(nullptr).message, ""); }

TEST_F(EngineCreateTest, EveryOptionIsAccepted) {
  const std::string directory = cache_dir();
  options_.cache_dir = directory.c_str();
  options_.tune_policy = DORAJIT_TUNE_FIRST_USE;
  options_.tune_seconds = 0.5;
  options_.scratch_bytes = 1 << 20;
  options_.trust_device_pointers = 1;
  options_.cpu_threads = 2;
  EXPECT_EQ(create_engine(&options_).message, "");
}

TEST_F(EngineCreateTest, StructOfTheFirstVersionIsAccepted) {
  struct FirstVersion {
    std::array<std::byte, offsetof(dorajit_engine_options, trust_device_pointers)> bytes;
  };
  // On the heap, so that a sanitizer reports reads beyond the struct.
  const auto options = std::make_unique<FirstVersion>();
  options_.struct_size = sizeof(FirstVersion);
  std::memcpy(options.get(), &options_, sizeof(FirstVersion));
  EXPECT_EQ(create_engine(reinterpret_cast<dorajit_engine_options*>(options.get())).message, "");
}

TEST_F(EngineCreateTest, NullEnginePointerIsRefused) {
  expect_refusal(outcome_of([](dorajit_error** error) {
                   return dorajit_engine_create(nullptr, nullptr, error);
                 }),
                 "`engine`");
}

TEST_F(EngineCreateTest, FailureNullsTheEngine) {
  auto* engine = reinterpret_cast<dorajit_engine*>(&options_);
  options_.tune_policy = 77;
  EXPECT_EQ(dorajit_engine_create(&options_, &engine, nullptr), DORAJIT_INVALID_ARGUMENT);
  EXPECT_EQ(engine, nullptr);
}

TEST_F(EngineCreateTest, StructWithoutSizeIsRefused) {
  options_.struct_size = 0;
  expect_refused("sizeof(dorajit_engine_options)");
  options_.struct_size = offsetof(dorajit_engine_options, trust_device_pointers) - 1;
  expect_refused("`options`");
}

TEST_F(EngineCreateTest, LaterStructWithZeroFieldsIsAccepted) {
  struct {
    dorajit_engine_options known;
    std::int64_t later[2];
  } options{};
  options.known.struct_size = sizeof options;
  EXPECT_EQ(create_engine(&options.known).message, "");
  options.later[1] = 1;
  expect_refusal(create_engine(&options.known), "`options`", "", DORAJIT_UNSUPPORTED);
}

TEST_F(EngineCreateTest, RefusesWrongOptions) {
  options_.cache_dir = "relative/folder";
  expect_refused("`options.cache_dir`");
  options_.cache_dir = nullptr;
  options_.tune_policy = 5;
  expect_refused("`options.tune_policy`");
  options_.tune_policy = DORAJIT_TUNE_OFF;
  for (const double seconds : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    options_.tune_seconds = seconds;
    expect_refused("`options.tune_seconds`");
  }
  options_.tune_seconds = 0;
  options_.scratch_bytes = -1;
  expect_refused("`options.scratch_bytes`");
  options_.scratch_bytes = 0;
  options_.trust_device_pointers = 2;
  expect_refused("`options.trust_device_pointers`");
  options_.trust_device_pointers = 0;
  for (const std::int64_t threads : {std::int64_t{-1}, std::int64_t{1} << 32}) {
    options_.cpu_threads = threads;
    expect_refused("`options.cpu_threads`");
  }
}

TEST_F(EngineCreateTest, RefusesUnknownValuesInTheEnvironment) {
  for (const std::string name :
       {"DORAJIT_TUNE", "DORAJIT_LOG", "DORAJIT_AUTOTUNE", "DORAJIT_TUNE_SECONDS",
        "DORAJIT_SCRATCH_BYTES", "DORAJIT_CACHE_DIR"}) {
    const char* before = std::getenv(name.c_str());
    const std::optional<std::string> kept =
        before != nullptr ? std::optional<std::string>(before) : std::nullopt;
    set_variable(name, "banana");
    expect_refusal(create_engine(nullptr), name, "banana");
    set_variable(name, kept);
  }
}

TEST_F(EngineCreateTest, WorksWithoutAnyCacheFolder) {
  options_.cache_dir = "";
  const EngineHandle engine = make_engine(&options_);
  HostArray data(ElementType::kFloat32, 8);
  EXPECT_EQ(compose(engine.get(), {data, {8}}, {data, {8}}, {data, {8}}, 1, {data, {8}}).status,
            DORAJIT_INVALID_ARGUMENT);  // out is also the gain
  HostArray gain(ElementType::kFloat32, 8);
  EXPECT_EQ(compose(engine.get(), {data, {8}}, {data, {8}}, {gain, {8}}, 1, {data, {8}}).message,
            "");
}

TEST_F(EngineCreateTest, DestroyingNullDoesNothing) {
  dorajit_engine_destroy(nullptr);
  dorajit_error_destroy(nullptr);
}

TEST_F(EngineCreateTest, StatisticsFillTheFieldsOfTheCallersStruct) {
  const EngineHandle engine = make_engine();
  struct {
    dorajit_statistics known;
    std::int64_t later;
  } statistics{};
  statistics.known.struct_size = sizeof statistics;
  statistics.known.trials = 99;
  statistics.later = 99;
  EXPECT_EQ(dorajit_engine_statistics(engine.get(), &statistics.known, nullptr), DORAJIT_OK);
  EXPECT_EQ(statistics.known.struct_size, sizeof statistics);
  EXPECT_EQ(statistics.known.trials, 0);
  EXPECT_EQ(statistics.later, 0);
}

TEST_F(EngineCreateTest, StatisticsDoNotWriteBeyondTheStructOfTheFirstVersion) {
  const EngineHandle engine = make_engine();
  struct FirstVersion {
    std::array<std::byte, offsetof(dorajit_statistics, renewed_plans)> bytes;
  };
  const auto statistics = std::make_unique<FirstVersion>();  // a sanitizer sees what is written
  const std::size_t size = sizeof(FirstVersion);
  std::memcpy(statistics.get(), &size, sizeof size);
  EXPECT_EQ(dorajit_engine_statistics(
                engine.get(), reinterpret_cast<dorajit_statistics*>(statistics.get()), nullptr),
            DORAJIT_OK);
}

TEST_F(EngineCreateTest, StatisticsRefuseWrongArguments) {
  const EngineHandle engine = make_engine();
  auto read = [](const dorajit_engine* from, dorajit_statistics* into) {
    return outcome_of(
        [&](dorajit_error** error) { return dorajit_engine_statistics(from, into, error); });
  };
  dorajit_statistics statistics{};
  expect_refusal(read(engine.get(), &statistics), "sizeof(dorajit_statistics)");
  expect_refusal(read(engine.get(), nullptr), "`statistics`");
  expect_refusal(read(nullptr, &statistics), "`engine`");
}

TEST(StatusNames, NamesMatchTheConstants) {
  EXPECT_STREQ(dorajit_status_name(DORAJIT_OK), "OK");
  EXPECT_STREQ(dorajit_status_name(DORAJIT_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  EXPECT_STREQ(dorajit_status_name(DORAJIT_CAPTURE_UNSAFE), "CAPTURE_UNSAFE");
  EXPECT_STREQ(dorajit_status_name(DORAJIT_INTERNAL), "INTERNAL");
  EXPECT_STREQ(dorajit_status_name(DORAJIT_INTERNAL + 1), "UNKNOWN");
  EXPECT_STREQ(dorajit_status_name(-1), "UNKNOWN");
}

TEST(Version, MacrosMatchTheLibraryAndTheProject) {
  EXPECT_EQ(dorajit_version(), DORAJIT_VERSION_NUMBER);
  EXPECT_EQ(
      std::format("{}.{}.{}", DORAJIT_VERSION_MAJOR, DORAJIT_VERSION_MINOR, DORAJIT_VERSION_PATCH),
      DORAJIT_VERSION);
}

}  // namespace
}  // namespace dorajit::bindings
