#include "cache/records/pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <format>
#include <string>
#include <thread>
#include <vector>

#include "kernel_templates/templates/streaming_configs.h"
#include "tests/fakes/captured_log.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using testing::HasSubstr;

Pin pin(const std::string& device, const std::string& problem, int warps) {
  return {.device = device,
          .problem = problem,
          .config = kernels::as_config({.block_size = 64, .num_warps = warps, .vector_width = 1}),
          .compiler = "nvrtc 13.0",
          .artifact = std::string(32, 'a'),
          .code = std::string(32, 'c')};
}

class PinsTest : public testing::Test {
 protected:
  [[nodiscard]] Pins pins() const { return {directory_.path(), {}}; }

  TemporaryDirectory directory_;
};

TEST_F(PinsTest, FolderWithoutTheFileHasNone) {
  EXPECT_TRUE(pins().read()->empty());
  EXPECT_FALSE(pins().find("cuda", "p/1"));
  EXPECT_FALSE(*pins().remove("cuda", "p/1"));
}

TEST_F(PinsTest, EntryIsFoundByDeviceAndProblem) {
  ASSERT_TRUE(pins().add(pin("cuda", "p/1", 4)));
  ASSERT_TRUE(pins().add(pin("cpu", "p/1", 2)));
  EXPECT_EQ(pins().find("cuda", "p/1"), pin("cuda", "p/1", 4));
  EXPECT_EQ(pins().find("cpu", "p/1"), pin("cpu", "p/1", 2));
  EXPECT_FALSE(pins().find("cpu", "p/2"));
}

TEST_F(PinsTest, EntryAppliesToDevicesOfTheModel) {
  ASSERT_TRUE(pins().add(pin("gpu/40 GiB", "p/1", 4)));
  EXPECT_EQ(pins().find("gpu/39 GiB", "p/1"), pin("gpu/40 GiB", "p/1", 4));
  EXPECT_FALSE(pins().find("gpu/80 GiB", "p/1"));
  ASSERT_TRUE(pins().add(pin("gpu/39 GiB", "p/1", 2)));
  EXPECT_EQ(pins().find("gpu/39 GiB", "p/1"), pin("gpu/39 GiB", "p/1", 2));
  EXPECT_EQ(pins().find("gpu/40 GiB", "p/1"), pin("gpu/40 GiB", "p/1", 4));
  EXPECT_TRUE(*pins().remove("gpu/39 GiB", "p/1"));
  EXPECT_FALSE(pins().find("gpu/40 GiB", "p/1"));
}

TEST_F(PinsTest, LaterEntryReplacesTheEarlierOne) {
  const Pins earlier = pins();
  ASSERT_TRUE(earlier.add(pin("cuda", "p/1", 4)));
  ASSERT_TRUE(pins().add(pin("cuda", "p/1", 8)));
  EXPECT_EQ(earlier.find("cuda", "p/1"), pin("cuda", "p/1", 8)) << "it reads again";
  EXPECT_EQ(pins().read()->size(), 1U);
  EXPECT_TRUE(*pins().remove("cuda", "p/1"));
  EXPECT_FALSE(earlier.find("cuda", "p/1"));
}

TEST_F(PinsTest, DamagedFileIsReportedOnceAndNotReplaced) {
  CapturedLog log;
  ASSERT_TRUE(pins().add(pin("cuda", "p/1", 4)));
  write_file(directory_.file("pins.jsonl"), "no pins");
  EXPECT_FALSE(pins().find("cuda", "p/1"));
  EXPECT_FALSE(pins().find("cuda", "p/1"));
  EXPECT_EQ(log.count("cannot use the pinned configs in"), 1);
  const Status added = pins().add(pin("cuda", "p/1", 4));
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message, HasSubstr("delete the file"));
  EXPECT_EQ(read_file(directory_.file("pins.jsonl")), "no pins");
}

TEST_F(PinsTest, FileOthersCanWriteIsNotUsed) {
  CapturedLog log;
  ASSERT_TRUE(pins().add(pin("cuda", "p/1", 4)));
  std::filesystem::permissions(directory_.file("pins.jsonl"), std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  EXPECT_FALSE(pins().find("cuda", "p/1"));
  EXPECT_EQ(log.size(), 1);
}

TEST_F(PinsTest, WithoutAFolderNoneIsKept) {
  const Pins none("", {});
  EXPECT_TRUE(none.read()->empty());
  const Status added = none.add(pin("cuda", "p/1", 4));
  ASSERT_FALSE(added);
  EXPECT_THAT(added.error().message, HasSubstr("DORAJIT_CACHE_DIR"));
}

TEST_F(PinsTest, FileThatSaysAllHidesTheFolder) {
  ASSERT_TRUE(pins().add(pin("cuda", "p/1", 4)));
  EXPECT_EQ(pins().locked_path(), nullptr);
  const Pins locked(directory_.path(), {},
                    PinFile{.path = "/x/train.lock", .pins = {pin("cuda", "p/2", 8)}});
  EXPECT_EQ(*locked.locked_path(), "/x/train.lock");
  EXPECT_FALSE(locked.find("cuda", "p/1"));
  EXPECT_EQ(locked.find("cuda", "p/2"), pin("cuda", "p/2", 8));
}

TEST_F(PinsTest, ConcurrentChangesAreAllKept) {
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&, i] { EXPECT_TRUE(pins().add(pin("cuda", std::format("p/{}", i), 1))); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pins().read()->size(), std::size_t{kThreads});
}

}  // namespace
}  // namespace dorajit::cache
