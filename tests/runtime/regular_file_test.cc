// Files that a user names: devices, FIFOs and files without end are refused at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/files.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMaxBytes = 100'000;

std::string refusal_of(const std::string& path) {
  const auto bytes = read_regular_file(path, kMaxBytes);
  EXPECT_FALSE(bytes) << path;
  return bytes ? std::string() : bytes.error();
}

TEST(RegularFileTest, BytesAreReadThroughALink) {
  const cache::TemporaryDirectory directory;
  const std::string bytes = std::string(kMaxBytes - 1, 'x') + '\0';
  cache::write_file(directory.file("data"), bytes);
  std::filesystem::create_symlink("data", directory.file("link"));
  EXPECT_EQ(read_regular_file(directory.file("link"), kMaxBytes), bytes);
  EXPECT_EQ(read_file_start(directory.file("data"), 5), "xxxxx");
  cache::write_file(directory.file("none"), "");
  EXPECT_EQ(read_regular_file(directory.file("none"), kMaxBytes), "");
}

TEST(RegularFileTest, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const cache::TemporaryDirectory directory;
  const std::string pipe = directory.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string socket = directory.file("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
  const FileDescriptor bound(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (const std::string& path :
       {pipe, socket, std::string("/dev/zero"), std::string("/dev/tty")}) {
    EXPECT_FALSE(read_regular_file(path, kMaxBytes)) << path;
  }
  EXPECT_EQ(refusal_of(pipe), "it is not a regular file");
  EXPECT_EQ(refusal_of(socket), "it is not a regular file");
  EXPECT_EQ(refusal_of("/dev/zero"), "it is not a regular file");
  EXPECT_EQ(refusal_of(directory.path()), "Is a directory");
  EXPECT_EQ(refusal_of(directory.file("missing")), "No such file or directory");
}

TEST(RegularFileTest, LargeFileIsRefused) {
  const cache::TemporaryDirectory directory;
  cache::write_file(directory.file("large"), std::string(kMaxBytes + 1, 'x'));
  EXPECT_EQ(refusal_of(directory.file("large")), "it is larger than 100000 bytes");
  std::filesystem::resize_file(directory.file("large"), std::uintmax_t{1} << 40);
  EXPECT_EQ(refusal_of(directory.file("large")), "it is larger than 100000 bytes");
}

TEST(RegularFileTest, FileOfUnknownSizeIsReadToItsEnd) {
  const auto status = read_regular_file("/proc/self/status", kMaxBytes);
  ASSERT_TRUE(status) << status.error();
  EXPECT_THAT(*status, HasSubstr("Threads:"));
}

}  // namespace
}  // namespace dorajit
