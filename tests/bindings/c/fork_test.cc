// Forks while another thread of the parent is tuning or logging.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>

#include "runtime/base/log.h"
#include "tests/bindings/c/c_abi_fixture.h"
#include "tests/fakes/child_process.h"

namespace dorajit::bindings {
namespace {

using cache::Pipe;

// A log sink that blocks threads of the parent that log a message with these words. In the child it
// does not block.
class HeldSpeaker {
 public:
  explicit HeldSpeaker(std::string_view words) : words_(words) {
    dorajit_set_log_sink([](std::int32_t, const char* message,
                            void* own) { static_cast<HeldSpeaker*>(own)->receive(message); },
                         this);
  }
  ~HeldSpeaker() { dorajit_set_log_sink(nullptr, nullptr); }
  HeldSpeaker(const HeldSpeaker&) = delete;
  HeldSpeaker& operator=(const HeldSpeaker&) = delete;

  // Waits until a thread is blocked. False if the call ended without such a message.
  [[nodiscard]] bool wait_until_held() const {
    char byte = 0;
    return held_.receive(byte) && byte == '.';
  }
  void end() const { held_.send('-'); }
  void let_go() const { go_.send('.'); }
  [[nodiscard]] int heard() const { return heard_; }

 private:
  void receive(std::string_view message) {
    ++heard_;
    if (::getpid() != parent_ || message.find(words_) == std::string_view::npos) return;
    held_.send('.');
    char byte = 0;
    static_cast<void>(go_.receive(byte));
  }

  const std::string_view words_;
  const pid_t parent_ = ::getpid();
  std::atomic<int> heard_ = 0;
  Pipe held_;
  Pipe go_;
};

class ForkTest : public CAbiTest {
 protected:
  ForkTest() {
    set_variable("DORAJIT_LOG", "info");
    set_variable("DORAJIT_CXX", std::nullopt);
    set_variable("DORAJIT_TUNE", "first_use");
    set_variable("DORAJIT_TUNE_SECONDS", "0.3");
    engine_ = make_engine();
  }

  // Forks while a thread that runs `call` is blocked at a message with `words`. The child runs
  // `child`, which must return 0.
  static void expect_child_ends(
      std::string_view words, const std::function<Outcome()>& call,
      const std::function<int(const HeldSpeaker&)>& child,
      const std::function<void()>& just_before = [] {}) {
    const HeldSpeaker speaker(words);
    std::thread caller([&] {
      EXPECT_EQ(call().message, "");
      speaker.end();
    });
    EXPECT_TRUE(speaker.wait_until_held());
    just_before();
    const int status = cache::run_in_child([&] {
      ::alarm(60);
      return child(speaker);
    });
    EXPECT_EQ(status, 0);
    speaker.let_go();
    caller.join();
  }

  EngineHandle engine_;
};

TEST_F(ForkTest, ForkWhileAnotherThreadTunesLeavesAWorkingChild) {
  SampleCompose tuned(64, 96);
  expect_child_ends(
      "tuned compose", [&] { return tuned.run(engine_.get()); },
      [&](const HeldSpeaker& speaker) {
        const int heard = speaker.heard();
        for (const std::int64_t cols : {96, 200}) {  // the same problem, and another
          SampleCompose own(64, cols);
          CHILD_CHECK(own.run(engine_.get()).message.empty());
          CHILD_CHECK(own.out.get(5) ==
                      plain_compose(own.lora.get(5), own.base.get(5), own.gain.get(5), 2));
        }
        CHILD_CHECK(statistics_of(engine_.get()).tuned_problems > 0);
        CHILD_CHECK(speaker.heard() > heard);  // through the parent's sink
        // Fork again, with no other thread running.
        CHILD_CHECK(cache::run_in_child([&] {
                      SampleCompose third(64, 300);
                      CHILD_CHECK(third.run(engine_.get()).message.empty());
                      engine_.reset();
                      return 0;
                    }) == 0);
        engine_.reset();
        return 0;
      });
  EXPECT_EQ(statistics_of(engine_.get()).tuned_problems, 1);
  EXPECT_EQ(tuned.run(engine_.get()).message, "");
}

TEST_F(ForkTest, ForkWhileAnotherThreadTunesAllowsDestroyingTheEngine) {
  SampleCompose tuned(64, 96);
  expect_child_ends(
      "tuned compose", [&] { return tuned.run(engine_.get()); },
      [&](const HeldSpeaker&) {
        engine_.reset();
        engine_ = make_engine();
        SampleCompose own(64, 200);
        CHILD_CHECK(own.run(engine_.get()).message.empty());
        return 0;
      });
}

TEST_F(ForkTest, ForkWhileAnotherThreadSetsTheSinkLeavesAWorkingChild) {
  SampleCompose tuned(64, 96);
  std::thread setter;
  expect_child_ends(
      "tuned compose",
      [&] {
        Outcome outcome = tuned.run(engine_.get());
        setter.join();
        return outcome;
      },
      [](const HeldSpeaker&) {
        const LogCapture own;
        log(LogLevel::kWarning, "of the child");
        CHILD_CHECK(own.lines().size() == 1);
        return 0;
      },
      [&] {
        setter =
            std::thread([] { dorajit_set_log_sink(nullptr, nullptr); });  // waits for the speaker
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      });
}

TEST_F(ForkTest, ForkInsideTheSinkContinuesInParentAndChild) {
  static pid_t child;
  child = 0;
  const pid_t parent = ::getpid();
  dorajit_set_log_sink(
      [](std::int32_t, const char* message, void*) {
        if (child == 0 && std::string_view(message).starts_with("tuned")) child = ::fork();
      },
      nullptr);
  SampleCompose tuned(64, 96);
  const Outcome outcome = tuned.run(engine_.get());
  dorajit_set_log_sink(nullptr, nullptr);
  if (::getpid() != parent) {
    ::alarm(120);
    EXPECT_EQ(outcome.message, "");
    // The child tracks unfinished work of its threads as the parent did, so it may fork again.
    SampleCompose next(64, 200);
    expect_child_ends(
        "tuned compose", [&] { return next.run(engine_.get()); },
        [&](const HeldSpeaker&) {
          SampleCompose own(64, 200);
          CHILD_CHECK(own.run(engine_.get()).message.empty());
          return 0;
        });
    ::_exit(HasFailure() ? 1 : 0);
  }
  EXPECT_EQ(outcome.message, "");
  ASSERT_GT(child, 0);
  EXPECT_EQ(cache::wait_for_child(child), 0);
}

TEST_F(ForkTest, LoadedKernelsServeTheChild) {
  const LogCapture quiet;
  SampleCompose known(64, 96);
  ASSERT_EQ(known.run(engine_.get()).message, "");
  const int status = cache::run_in_child([&] {
    const std::int64_t before = statistics_of(engine_.get()).launches;
    CHILD_CHECK(known.run(engine_.get()).message.empty());
    CHILD_CHECK(statistics_of(engine_.get()).launches == before + 1);
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace dorajit::bindings
