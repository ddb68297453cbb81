// Deep and wide JSON in every place where dorajit reads JSON that another process may have written.
#include <gtest/gtest.h>

#include <chrono>
#include <format>
#include <functional>
#include <string>
#include <vector>

#include "autotune/service/protocol/messages.h"
#include "cache/artifacts/artifact_files.h"
#include "cache/records/pins.h"
#include "cache/records/trial_lines.h"
#include "own_kernels/kernel.h"
#include "runtime/base/hash.h"

namespace dorajit::cache {
namespace {

std::string deep_value() { return std::string(200'000, '[') + std::string(200'000, ']'); }

std::string wide_value() {
  std::string text = "{\"k\":0";
  for (int i = 0; i < 200'000; ++i) text += std::format(",\"k{}\":0", i);
  return text + "}";
}

std::string lock_header(std::string_view digest) {
  return std::format(R"({{"format":"dorajit-lock","version":1,"problems":1,"digest":{}}})", digest);
}

// Whether a reader accepts a text with that value in the place of one of its own.
const std::vector<std::pair<const char*, std::function<bool(const std::string& value)>>> kReaders =
    {
        {"lock file, header",
         [](const std::string& value) { return parse_pin_text(lock_header(value)).has_value(); }},
        {"lock file, line",
         [](const std::string& value) {
           const std::string line = "{\"device\":" + value + "}\n";
           const std::string digest = "\"" + hash_hex(line) + "\"";
           return parse_pin_text(lock_header(digest) + "\n" + line).has_value();
         }},
        {"trials, header",
         [](const std::string& value) {
           return parse_lines("{\"format\":\"dorajit-trials\",\"version\":" + value + "}\n")
               .has_value();
         }},
        {"trials, line",
         [](const std::string& value) {
           const std::string header = "{\"format\":\"dorajit-trials\",\"version\":1}\n";
           return !parse_lines(header + "{\"device\":" + value + "}\n")->trials.empty();
         }},
        {"kernel description",
         [](const std::string& value) {
           return own_kernels::make_kernel("{\"name\":\"x\",\"types\":{\"T\":[" + value + "]}}")
               .has_value();
         }},
        {"request",
         [](const std::string& value) {
           return autotune::protocol::parse_request("{\"type\":\"status\",\"x\":" + value + "}")
               .has_value();
         }},
        {"answer",
         [](const std::string& value) {
           return autotune::protocol::parse_answer(
                      "{\"type\":\"text\",\"text\":\"\",\"x\":" + value + "}")
               .has_value();
         }},
        {"sealed file",
         [](const std::string& value) {
           return unseal(SealKind::kNote, "k", "{\"magic\":" + value + "}\n").has_value();
         }},
};

TEST(HostileJson, DeepTextIsRefusedByEveryReader) {
  const std::string value = deep_value();
  for (const auto& [name, accepts] : kReaders) EXPECT_FALSE(accepts(value)) << name;
}

TEST(HostileJson, WideTextIsRefusedByEveryReader) {
  const std::string value = wide_value();
  for (const auto& [name, accepts] : kReaders) EXPECT_FALSE(accepts(value)) << name;
}

TEST(HostileJson, ByteOrderMarkIsRefusedByEveryReader) {
  for (const auto& [name, accepts] : kReaders)
    EXPECT_FALSE(
        accepts("\xef\xbb\xbf"
                "0"))
        << name;
  EXPECT_FALSE(autotune::protocol::parse_request("\xef\xbb\xbf{\"type\":\"status\"}"));
  EXPECT_TRUE(autotune::protocol::parse_request("{\"type\":\"status\"}"));
}

}  // namespace
}  // namespace dorajit::cache
