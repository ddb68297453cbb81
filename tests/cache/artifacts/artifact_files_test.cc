#include "cache/artifacts/artifact_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <format>
#include <thread>

#include "tests/fakes/captured_log.h"
#include "tests/fakes/child_process.h"
#include "tests/fakes/small_disk.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

std::string key(int i) { return std::format("{:032x}", 0xab00 + i); }

std::string path_of(const TemporaryDirectory& directory, const std::string& name) {
  return directory.file("artifacts/" + name.substr(0, 2) + "/" + name + ".art");
}

Artifact sample(std::size_t bytes = 100, char fill = 'k') {
  Artifact artifact{std::string(bytes, fill), {32, 4096, 16, 8, 4}};
  artifact.code[bytes / 2] = '\0';
  artifact.code[bytes / 3] = '\n';
  return artifact;
}

void age(const std::string& path, int hours) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(ArtifactFiles, RoundTripsThroughAnotherInstance) {
  const TemporaryDirectory directory;
  ArtifactFiles(directory.path()).insert(key(1), sample());
  ArtifactFiles files(directory.path());
  const auto found = files.find(key(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, sample().code);
  EXPECT_EQ(found->resources, sample().resources);
  EXPECT_FALSE(files.find(key(2)));
}

// Templates of templates have such symbols.
TEST(ArtifactFiles, SymbolOfAnyLengthIsKept) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  Artifact artifact = sample();
  artifact.entry = "_Z" + std::string(2 << 20, 's');
  files.insert(key(1), artifact);
  const auto found = files.find(key(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry, artifact.entry);
  EXPECT_EQ(found->code, artifact.code);
}

TEST(ArtifactFiles, StoresAnEmptyArtifact) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), {});
  EXPECT_EQ(files.find(key(1)).value().code, "");
}

TEST(ArtifactFiles, FoldersAreAccessibleToTheirOwnerOnly) {
  const TemporaryDirectory directory;
  ArtifactFiles(directory.file("cache")).insert(key(1), sample());
  for (const char* name : {"cache", "cache/artifacts", "cache/artifacts/00"}) {
    struct stat info{};
    ASSERT_EQ(::stat(directory.file(name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0700U) << name;
  }
}

TEST(ArtifactFiles, NotesRoundTripAndAreSeparateFromArtifacts) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert_note(key(1), "nvrtc 12.9.86");
  EXPECT_EQ(files.find_note(key(1)), "nvrtc 12.9.86");
  EXPECT_FALSE(files.find_note(key(2)));
  EXPECT_FALSE(files.find(key(1)));

  std::string bytes = read_file(directory.file("notes/" + key(1)));
  bytes.back() ^= 1;
  write_file(directory.file("notes/" + key(1)), bytes);
  EXPECT_FALSE(files.find_note(key(1)));
}

TEST(ArtifactFiles, EveryTruncationIsAMiss) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), sample(20));
  const std::string path = path_of(directory, key(1));
  const std::string whole = read_file(path);
  const CapturedLog quiet;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    EXPECT_FALSE(files.find(key(1))) << size;
    EXPECT_FALSE(file_exists(path)) << size;
  }
  write_file(path, whole + "x");
  EXPECT_FALSE(files.find(key(1)));
  write_file(path, whole);
  EXPECT_TRUE(files.find(key(1)));
}

TEST(ArtifactFiles, EveryFlippedBitIsAMiss) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), sample(20));
  const std::string path = path_of(directory, key(1));
  const std::string whole = read_file(path);
  const CapturedLog quiet;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const int mask : {1, 0x80}) {
      std::string altered = whole;
      altered[i] = static_cast<char>(altered[i] ^ mask);
      write_file(path, altered);
      EXPECT_FALSE(files.find(key(1))) << "byte " << i << " mask " << mask;
    }
  }
}

TEST(ArtifactFiles, FileOfAnotherKeyIsDeletedAndLoggedOnce) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), sample(100, 'a'));
  files.insert(key(2), sample(100, 'b'));
  const std::string path = path_of(directory, key(1));
  CapturedLog log;
  for (int i = 0; i < 2; ++i) {
    write_file(path, read_file(path_of(directory, key(2))));
    EXPECT_FALSE(files.find(key(1)));
    EXPECT_FALSE(file_exists(path));
  }
  EXPECT_EQ(log.count("another key"), 1);
  EXPECT_EQ(log.size(), 1);
  EXPECT_TRUE(files.find(key(2)));
}

TEST(ArtifactFiles, NewerFormatIsAMissAndIsKept) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), sample());
  const std::string path = path_of(directory, key(1));
  write_file(path, R"({"magic":"dorajit-artifact","format":2})"
                   "\nbody");
  EXPECT_FALSE(files.find(key(1)));
  EXPECT_TRUE(file_exists(path));
}

TEST(ArtifactFiles, InvalidKeysAreNeverUsedAsPaths) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  for (const std::string& bad : {std::string(), std::string("../../x"), std::string(32, '/'),
                                 std::string(32, 'A'), std::string(33, 'a')}) {
    files.insert(bad, sample());
    files.insert_note(bad, "note");
    EXPECT_FALSE(files.find(bad));
    EXPECT_FALSE(files.find_note(bad));
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(ArtifactFiles, NonRegularFileIsAMiss) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path());
  files.insert(key(1), sample());
  const std::string path = path_of(directory, key(1));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const CapturedLog quiet;
  EXPECT_FALSE(files.find(key(1)));
  EXPECT_FALSE(file_exists(path));
}

TEST(ArtifactFiles, LeastRecentlyUsedIsEvictedFirst) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path(), 4000);
  for (int i = 1; i <= 3; ++i) files.insert(key(i), sample(800));
  for (int i = 1; i <= 3; ++i) age(path_of(directory, key(i)), 10 - i);
  EXPECT_TRUE(files.find(key(1)));  // now the most recently used
  files.insert(key(4), sample(800));
  EXPECT_TRUE(files.find(key(1)));
  EXPECT_FALSE(files.find(key(2)));
  EXPECT_TRUE(files.find(key(3)));
  EXPECT_TRUE(files.find(key(4)));
}

TEST(ArtifactFiles, NewestArtifactIsNeverEvicted) {
  const TemporaryDirectory directory;
  ArtifactFiles files(directory.path(), 1000);
  files.insert(key(1), sample(100));
  age(path_of(directory, key(1)), -1);  // clocks differ: it appears newer than the next one
  files.insert(key(2), sample(5000));
  EXPECT_FALSE(files.find(key(1)));
  EXPECT_TRUE(files.find(key(2)));
}

TEST(ArtifactFiles, EmptyDirectoryNameStoresNothingSilently) {
  CapturedLog log;
  ArtifactFiles files("");
  files.insert(key(1), sample());
  files.insert_note(key(1), "note");
  EXPECT_FALSE(files.find(key(1)));
  EXPECT_FALSE(files.find_note(key(1)));
  EXPECT_EQ(log.size(), 0);
}

TEST(ArtifactFiles, UnusableDirectoryIsLoggedOnce) {
  const TemporaryDirectory directory;
  write_file(directory.file("plain"), "");
  CapturedLog log;
  ArtifactFiles files(directory.file("plain/cache"));
  for (int i = 0; i < 3; ++i) {
    files.insert(key(i), sample());
    EXPECT_FALSE(files.find(key(i)));
  }
  EXPECT_EQ(log.size(), 1);
  EXPECT_EQ(log.count(directory.file("plain/cache/artifacts")), 1);
  EXPECT_EQ(log.count("Not a directory"), 1);
  EXPECT_EQ(log.count("set DORAJIT_CACHE_DIR to a writable folder"), 1);
}

TEST(ArtifactFiles, ReadOnlyDirectoryIsStillRead) {
  const TemporaryDirectory directory;
  ArtifactFiles(directory.path()).insert(key(1), sample());
  std::filesystem::permissions(path_of(directory, key(1)), std::filesystem::perms(0444));
  for (const auto& path :
       {directory.path(), directory.file("artifacts"), directory.file("artifacts/00")}) {
    std::filesystem::permissions(path, std::filesystem::perms(0555));
  }
  const int status = run_in_child([&] {
    if (!drop_root()) return kChildSkips;
    CapturedLog log;
    ArtifactFiles files(directory.path());
    CHILD_CHECK(files.find(key(1)));
    files.insert(key(2), sample());
    CHILD_CHECK(!files.find(key(2)));
    CHILD_CHECK(log.size() == 1);
    CHILD_CHECK(log.count("Permission denied") == 1);
    return 0;
  });
  for (const auto& path : {directory.file("artifacts"), directory.file("artifacts/00")}) {
    std::filesystem::permissions(path, std::filesystem::perms(0755));
  }
  if (status == kChildSkips) GTEST_SKIP() << "changing the user is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(ArtifactFiles, FullDiskIsLoggedOnceAndLeavesNoPartialFiles) {
  const TemporaryDirectory directory;
  const int status = run_in_child([&] {
    if (!mount_small_disk(directory.path(), "256k")) return kChildSkips;
    CapturedLog log;
    ArtifactFiles files(directory.path());
    files.insert(key(1), sample(1000));
    for (int i = 2; i < 5; ++i) files.insert(key(i), sample(1 << 20));
    CHILD_CHECK(files.find(key(1)));
    CHILD_CHECK(!files.find(key(2)));
    CHILD_CHECK(log.size() == 1);
    CHILD_CHECK(log.count("No space left on device") == 1);
    CHILD_CHECK(count_names(directory.path(), ".tmp.") == 0);
    return 0;
  });
  if (status == kChildSkips) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST(ArtifactFiles, ProcessesAndThreadsNeverSeePartialFiles) {
  const TemporaryDirectory directory;
  run_at_once(8, [&](int process) {
    ArtifactFiles files(directory.path(), 400'000);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 25; ++i) {
          const int which = (process + t + i) % 10;
          const Artifact mine = sample(20'000, static_cast<char>('a' + which));
          files.insert(key(which), mine);
          const auto found = files.find(key(which));
          if (found && found->code != mine.code) wrong.fetch_add(1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return wrong.load() == 0 ? 0 : 1;
  });
  ArtifactFiles files(directory.path());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(files.find(key(i))) << i;
  EXPECT_EQ(count_names(directory.path(), ".tmp."), 0);
}

}  // namespace
}  // namespace dorajit::cache
