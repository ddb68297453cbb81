// Work that cannot be interrupted, under a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace dorajit::compile {

// Of one compilation. The slowest takes a few seconds.
inline constexpr std::chrono::seconds kCompileTimeLimit{60};

// How many threads may be left behind by run_within() in a process. A forked child has left none.
inline constexpr int kMaxAbandonedThreads = 4;

enum class Outcome {
  kDone,
  kTooLate,  // the work goes on by itself, and has one of the process's processors to itself
  kRefused,  // kMaxAbandonedThreads are busy with work that came too late
};

// Runs the work on a thread of its own, or on this one if there can be no more threads. What throws
// there throws here. After the limit the thread is left behind, so the work must own whatever it
// uses. This library then stays loaded, and exit() during the work ends the process with its status
// at once, without the destructors of the libraries that the work is using.
Outcome run_within(std::chrono::milliseconds limit, std::function<void()> work);

template <class T>
std::pair<Outcome, std::optional<T>> run_within(std::chrono::milliseconds limit,
                                                std::function<T()> work) {
  auto result = std::make_shared<std::optional<T>>();
  const Outcome outcome = run_within(
      limit, std::function<void()>([result, work = std::move(work)] { result->emplace(work()); }));
  // What comes too late is written by the other thread.
  if (outcome != Outcome::kDone) return {outcome, std::nullopt};
  return {outcome, std::move(*result)};
}

}  // namespace dorajit::compile
