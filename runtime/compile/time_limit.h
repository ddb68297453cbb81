// Runs work that cannot be interrupted with a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace dorajit::compile {

// Limit of one compilation. The slowest takes a few seconds.
inline constexpr std::chrono::seconds kCompileTimeLimit{60};

// How many abandoned threads run_within() allows in a process. A forked child starts at zero.
inline constexpr int kMaxAbandonedThreads = 4;

enum class Outcome {
  kDone,
  kTooLate,  // the work still runs and occupies one of the process's processors
  kRefused,  // kMaxAbandonedThreads threads are still busy with abandoned work
};

// Runs the work on a new thread, or on the calling thread if no thread can be created. Rethrows its
// exception. After the limit the thread is abandoned, so the work must own everything that it uses.
// This library then stays loaded, and exit() during the work ends the process with its status at
// once, without the destructors of the libraries that the work uses.
Outcome run_within(std::chrono::milliseconds limit, std::function<void()> work);

template <class T>
std::pair<Outcome, std::optional<T>> run_within(std::chrono::milliseconds limit,
                                                std::function<T()> work) {
  auto result = std::make_shared<std::optional<T>>();
  const Outcome outcome = run_within(
      limit, std::function<void()>([result, work = std::move(work)] { result->emplace(work()); }));
  // An abandoned thread writes its result later, so the result must not be read.
  if (outcome != Outcome::kDone) return {outcome, std::nullopt};
  return {outcome, std::move(*result)};
}

}  // namespace dorajit::compile
