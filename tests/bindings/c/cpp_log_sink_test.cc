// dorajit::LogSink: ownership of the function, and exceptions that it throws.
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

#include "dorajit/dorajit.hpp"
#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

static_assert(!std::is_copy_constructible_v<LogSink>);
static_assert(std::is_nothrow_move_constructible_v<LogSink>);

using Lines = std::vector<std::string>;

LogSink into(Lines& lines) {
  return LogSink([&lines](LogLevel level, const char* message) {
    EXPECT_EQ(level, LogLevel::kWarning);
    lines.emplace_back(message);
  });
}

std::string said_on_stderr(const std::string& message) {
  testing::internal::CaptureStderr();
  log_warning(message);
  return testing::internal::GetCapturedStderr();
}

TEST(CppLogSink, ReceivesWhileItLives) {
  Lines lines;
  {
    const LogSink sink = into(lines);
    log_warning("first");
    log_warning("second");
  }
  EXPECT_EQ(said_on_stderr("third"), "dorajit: warning: third\n");
  EXPECT_EQ(lines, (Lines{"first", "second"}));
}

TEST(CppLogSink, LastSinkReceivesAndOnlyItRestoresStandardError) {
  Lines first_lines;
  Lines second_lines;
  auto first = std::make_unique<LogSink>(into(first_lines));
  auto second = std::make_unique<LogSink>(into(second_lines));
  first.reset();
  log_warning("for the second");
  EXPECT_EQ(second_lines, Lines{"for the second"});
  second.reset();
  EXPECT_TRUE(first_lines.empty());
  EXPECT_EQ(said_on_stderr("again"), "dorajit: warning: again\n");
}

TEST(CppLogSink, MayBeMoved) {
  Lines lines;
  std::unique_ptr<LogSink> kept;
  {
    LogSink sink = into(lines);
    kept = std::make_unique<LogSink>(std::move(sink));
  }
  log_warning("still");
  EXPECT_EQ(lines, Lines{"still"});
}

TEST(CppLogSink, ExceptionsOfTheFunctionAreDropped) {
  int calls = 0;
  const LogSink sink([&](LogLevel, const char*) {
    ++calls;
    throw std::runtime_error("in a sink");
  });
  log_warning("one");
  log_warning("two");
  EXPECT_EQ(calls, 2);
}

// A sanitizer reports a message that arrives after the sink was destroyed.
struct Receiver {
  std::atomic<int> messages = 0;
  LogSink sink{[this](LogLevel, const char*) { ++messages; }};
};

TEST(CppLogSinkThread, NoMessageArrivesOnceItIsDestroyed) {
  auto receiver = std::make_unique<Receiver>();
  std::atomic<bool> stop = false;
  std::thread speaker([&] {
    while (!stop) log_warning("again");
  });
  for (int i = 0; i < 200; ++i) {
    auto next = std::make_unique<Receiver>();
    receiver = std::move(next);
    while (receiver->messages == 0) std::this_thread::yield();
  }
  stop = true;
  speaker.join();
}

}  // namespace
}  // namespace dorajit::bindings
