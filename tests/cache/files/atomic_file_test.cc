#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>

#include "cache/files/shared_file.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/small_disk.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

TEST(AtomicFile, IsAbsentUntilPublished) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("data");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->write("whole"));
  EXPECT_FALSE(file_exists(path));
  ASSERT_TRUE(file->publish_replacing());
  EXPECT_EQ(read_file(path), "whole");
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
}

TEST(AtomicFile, PublishReplacesAnExistingFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("data");
  write_file(path, "old");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file && file->write("new") && file->publish_replacing());
  EXPECT_EQ(read_file(path), "new");
}

TEST(AtomicFile, PublishIfAbsentKeepsAnExistingFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("data");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file && file->write("second"));
  write_file(path, "first");
  const auto published = file->publish_if_absent();
  ASSERT_TRUE(published) << published.error().message;
  EXPECT_FALSE(*published);
  EXPECT_EQ(read_file(path), "first");
}

TEST(AtomicFile, PublishesIfAbsent) {
  const TemporaryDirectory directory;
  auto file = AtomicFile::create(directory.file("data"));
  ASSERT_TRUE(file && file->write("first"));
  EXPECT_TRUE(file->publish_if_absent().value());
  EXPECT_EQ(read_file(directory.file("data")), "first");
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
}

TEST(AtomicFile, UnpublishedFileIsRemoved) {
  const TemporaryDirectory directory;
  {
    auto file = AtomicFile::create(directory.file("data"));
    ASSERT_TRUE(file && file->write("half"));
    EXPECT_EQ(count_names(directory.path(), ".tmp."), 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(AtomicFile, ErrorNamesPathReasonAndRemedy) {
  const TemporaryDirectory directory;
  write_file(directory.file("plain"), "");
  const auto file = AtomicFile::create(directory.file("plain/data"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, StatusCode::kIoError);
  EXPECT_EQ(file.error().message,
            "cannot create " + directory.file("plain/data") +
                ": Not a directory; set DORAJIT_CACHE_DIR to a writable folder");
}

TEST(AtomicFile, FailsCleanlyAtTheFileSizeLimit) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    std::signal(SIGXFSZ, SIG_DFL);  // which would end the process
    const rlimit limit{4096, 4096};
    CHILD_CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    auto file = AtomicFile::create(directory.file("data"));
    CHILD_CHECK(file);
    const auto written = file->write(std::string(10000, 'x'));
    CHILD_CHECK(!written);
    CHILD_CHECK(written.error().message.find("ulimit -f") != std::string::npos);
    sigset_t left;
    CHILD_CHECK(::sigpending(&left) == 0 && sigismember(&left, SIGXFSZ) == 0);
    CHILD_CHECK(::pthread_sigmask(SIG_BLOCK, nullptr, &left) == 0);
    CHILD_CHECK(sigismember(&left, SIGXFSZ) == 0);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(AtomicFile, FailsCleanlyOnAFullDisk) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "64k")) return kChildSkips;
    {
      auto file = AtomicFile::create(directory.file("data"));
      CHILD_CHECK(file);
      const auto written = file->write(std::string(1 << 20, 'x'));
      CHILD_CHECK(!written);
      CHILD_CHECK(written.error().message.find("free space") != std::string::npos);
    }
    CHILD_CHECK(std::filesystem::is_empty(directory.path()));
    return 0;
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(AtomicFile, OnlyOldTemporaryFilesAreRemoved) {
  const TemporaryDirectory directory;
  write_file(directory.file("a.tmp.old"), "");
  write_file(directory.file("b.tmp.new"), "");
  write_file(directory.file("c"), "");
  const auto two_hours_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
  std::filesystem::last_write_time(directory.file("a.tmp.old"), two_hours_ago);
  std::filesystem::last_write_time(directory.file("c"), two_hours_ago);
  remove_stale_temporaries(directory.path());
  EXPECT_FALSE(file_exists(directory.file("a.tmp.old")));
  EXPECT_TRUE(file_exists(directory.file("b.tmp.new")));
  EXPECT_TRUE(file_exists(directory.file("c")));
}

}  // namespace
}  // namespace dorajit::cache
