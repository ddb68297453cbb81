#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <format>

#include "cache/files/directories.h"
#include "cache/files/shared_file.h"
#include "runtime/base/file_descriptor.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

namespace fs = std::filesystem;

TEST(OutputFile, ReplacedFileKeepsItsModeAndANewOneHasTheUsual) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("out");
  const mode_t mask = ::umask(022);
  ASSERT_TRUE(write_output_file(path, "first"));
  ::umask(mask);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms{0644});
  for (const unsigned mode : {0600U, 0640U, 0666U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(write_output_file(path, "next"));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms{mode});
  }
  EXPECT_EQ(read_file(path), "next");
}

TEST(OutputFile, OwnLinksAreFollowedAndKept) {
  const TemporaryDirectory directory;
  fs::create_directories(directory.file("a/b"));
  fs::create_symlink("b/../b", directory.file("a/folder"));
  fs::create_symlink("../folder/out", directory.file("a/b/link"));
  fs::create_symlink(directory.file("a/b/link"), directory.file("absolute"));
  const auto written = write_output_file(directory.file("absolute"), "text");
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(read_file(directory.file("a/b/out")), "text");
  EXPECT_TRUE(fs::is_symlink(directory.file("a/b/link")));
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
}

TEST(OutputFile, LinksOfTheKernelLeadToOpenPipesAndFiles) {
  const TemporaryDirectory directory;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const auto written = write_output_file(std::format("/dev/fd/{}", ends[1]), "text");
  ASSERT_TRUE(written) << written.error().message;
  std::array<char, 8> bytes{};
  EXPECT_EQ(::read(ends[0], bytes.data(), bytes.size()), 4);
  for (const int end : ends) ::close(end);

  write_file(directory.file("file"), "before");
  const FileDescriptor file(::open(directory.file("file").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(write_output_file(held_path(file), "after"));
  EXPECT_EQ(read_file(directory.file("file")), "after");
}

TEST(OutputFile, PathsThatAreNoFileAreRefused) {
  const TemporaryDirectory directory;
  fs::create_symlink("loop", directory.file("loop"));
  write_file(directory.file("file"), "");
  for (const char* name : {"", "loop", "file/out", "missing/out", "new/", "."}) {
    const auto refused = write_output_file(directory.file(name), "text");
    ASSERT_FALSE(refused) << name;
    EXPECT_NE(refused.error().message.find("name a file in a writable folder"), std::string::npos)
        << refused.error().message;
  }
  EXPECT_FALSE(write_output_file("", "text"));
}

}  // namespace
}  // namespace dorajit::cache
