#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "cache/records/pins.h"
#include "kernel_templates/templates/streaming_configs.h"
#include "tests/fakes/temporary_directory.h"

namespace dorajit::cache {
namespace {

using testing::HasSubstr;

Pin entry(const std::string& device, const std::string& problem) {
  return {.device = device,
          .problem = problem,
          .config = kernels::as_config({.block_size = 2048, .num_warps = 8, .vector_width = 8}),
          .compiler = "nvrtc 13.0",
          .artifact = std::string(32, 'a'),
          .code = std::string(32, 'c')};
}

std::vector<Pin> entries() {
  Pin builtin = entry("cpu \"x\"", "p/2");
  builtin.compiler = builtin.artifact = builtin.code = "";
  return {entry("cuda", "p/2"), entry("cuda", "p/1"), builtin};
}

TEST(LockFile, EntriesRoundTripSorted) {
  const auto given = entries();
  const std::string text = to_pin_text(given);
  const auto read = parse_pin_text(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, (std::vector{given[2], given[1], given[0]}));
  const std::vector<Pin> other = {given[1], given[2], given[0], given[1]};
  EXPECT_EQ(to_pin_text(other), text);
  EXPECT_EQ(to_pin_text(*read), text);
  EXPECT_TRUE(parse_pin_text(to_pin_text({}))->empty());
}

TEST(LockFile, IncompleteTextIsRefused) {
  const std::string text = to_pin_text(entries());
  for (std::size_t size = 0; size < text.size(); size += 7) {
    EXPECT_FALSE(parse_pin_text(std::string_view(text).substr(0, size))) << size;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string altered = text;
    altered[at] = static_cast<char>(altered[at] ^ 1);
    EXPECT_FALSE(parse_pin_text(altered)) << at << altered;
  }
  EXPECT_FALSE(parse_pin_text(text + "\n"));
}

TEST(LockFile, ErrorsDescribeTheFault) {
  const auto why = [](std::string_view text) { return parse_pin_text(text).error().message; };
  EXPECT_THAT(why(""), HasSubstr("first line"));
  EXPECT_THAT(why("{\"format\":\"dorajit-trials\",\"version\":2}\n"), HasSubstr("first line"));
  std::string newer = to_pin_text({});
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":2");
  EXPECT_THAT(why(newer), HasSubstr("version 2"));
  EXPECT_THAT(why(to_pin_text(entries()) + "x"), HasSubstr("digest"));
}

TEST(LockFile, ByteOrderMarkIsRefused) {
  const std::string text = to_pin_text(entries());
  EXPECT_FALSE(parse_pin_text("\xef\xbb\xbf" + text));
}

TEST(LockFile, TextsWithControlCharactersAreRefused) {
  const std::vector<std::pair<std::string, std::string Pin::*>> texts = {
      {"device", &Pin::device},
      {"problem", &Pin::problem},
      {"compiler", &Pin::compiler},
      {"artifact", &Pin::artifact},
      {"code", &Pin::code}};
  for (const auto& [name, member] : texts) {
    Pin forged = entry("cuda", "p/1");
    forged.*member += "\x1b[2J\n";
    const auto read = parse_pin_text(to_pin_text(std::vector{forged}));
    ASSERT_FALSE(read) << name;
    EXPECT_THAT(read.error().message, HasSubstr("its line 2 is not a valid entry"));
  }
}

TEST(LockFile, UnreadableFileIsNamedInTheError) {
  const TemporaryDirectory directory;
  const auto why = [](const std::string& path) {
    const auto read = read_pin_file(path);
    return read ? std::string() : read.error().message;
  };
  EXPECT_THAT(why(directory.file("none")), HasSubstr(directory.file("none") + ": No such file"));
  EXPECT_THAT(why(directory.path()), HasSubstr("cannot use the lock file"));
  const std::string path = directory.file("a.lock");
  std::ofstream(path) << to_pin_text(entries());
  EXPECT_EQ(why(path), "");
  EXPECT_EQ(read_pin_file(path)->size(), 3U);
}

TEST(LockFile, DifferencesListEveryField) {
  const Pin first = entry("cuda", "p/1");
  EXPECT_TRUE(differences(first, first).empty());
  Pin second = first;
  second.config.set(kernels::kWarps, 4);
  second.compiler = "nvrtc 13.1";
  second.artifact[0] = 'b';
  second.code = "";
  const auto found = differences(first, second);
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].field, "config");
  EXPECT_EQ(found[0].first, "b2048-w8-r1-v8-u1-c0");
  EXPECT_EQ(found[0].second, "b2048-w4-r1-v8-u1-c0");
  EXPECT_EQ(found[1].second, "nvrtc 13.1");
  EXPECT_EQ(found[3].field, "code");
}

}  // namespace
}  // namespace dorajit::cache
