// Messages go to the caller's sink, and to standard error again after it is removed.
#include <atomic>
#include <cstdint>
#include <thread>

#include "runtime/base/log.h"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

class LogSinkTest : public CAbiTest {
 protected:
  LogSinkTest() { set_log_level(LogLevel::kInfo); }
  ~LogSinkTest() override { set_log_level(LogLevel::kWarning); }
};

TEST_F(LogSinkTest, ReceivesLevelAndWholeLine) {
  const LogCapture capture;
  log(LogLevel::kError, std::string_view("first line, cut").substr(0, 10));
  log(LogLevel::kInfo, "second");
  log(LogLevel::kDebug, "below the level");
  ASSERT_EQ(capture.lines().size(), 2U) << capture.text();
  EXPECT_EQ(capture.lines()[0].level, DORAJIT_LOG_ERROR);
  EXPECT_EQ(capture.lines()[0].message, "first line");
  EXPECT_EQ(capture.lines()[1].level, DORAJIT_LOG_INFO);
}

TEST_F(LogSinkTest, ReceivesPrintableLines) {
  {
    const LogCapture capture;
    log(LogLevel::kWarning, "a\x1b[2J\ndorajit: error: forged \xff\u00e9");
    ASSERT_EQ(capture.lines().size(), 1U);
    EXPECT_EQ(capture.lines()[0].message, "a\\u001b[2J\\u000adorajit: error: forged \\xff\u00e9");
  }
  testing::internal::CaptureStderr();
  log(LogLevel::kWarning, "a\nb");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "dorajit: warning: a\\u000ab\n");
}

TEST_F(LogSinkTest, LastSinkReceives) {
  const LogCapture first;
  {
    const LogCapture second;
    log(LogLevel::kInfo, "for the second");
    EXPECT_EQ(second.lines().size(), 1U);
  }
  EXPECT_TRUE(first.lines().empty());
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "for nobody");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "dorajit: info: for nobody\n");
}

TEST_F(LogSinkTest, MayBeReplacedWhileOtherThreadsLog) {
  constexpr int kMessages = 2000;
  std::atomic<int> spoken = 0;
  std::atomic<int> received[] = {0, 0};
  auto listen = [&](int listener) {
    dorajit_set_log_sink(
        [](std::int32_t, const char*, void* count) { ++*static_cast<std::atomic<int>*>(count); },
        &received[listener]);
  };
  listen(0);
  std::thread speaker([&] {
    for (; spoken < kMessages; ++spoken) log(LogLevel::kInfo, "again");
  });
  for (int listener = 0; spoken < kMessages; listener = 1 - listener) listen(listener);
  speaker.join();
  dorajit_set_log_sink(nullptr, nullptr);
  EXPECT_EQ(received[0] + received[1], kMessages);
}

TEST_F(LogSinkTest, EnvironmentSetsTheLevel) {
  set_variable("DORAJIT_LOG", "debug");
  make_engine();
  EXPECT_EQ(log_level(), LogLevel::kDebug);
}

}  // namespace
}  // namespace dorajit::bindings
