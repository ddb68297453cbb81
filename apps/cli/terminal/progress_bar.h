// A progress bar for long work, on a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "cache/records/tuning_records.h"
#include "runtime/base/log.h"

namespace dorajit::cli {

// Draws on standard error, and only if that is a terminal. One at a time; thread-safe. While it
// lives, log lines pass through it, so that they do not tear the bar.
class ProgressBar {
 public:
  // With `wanted` false it never draws.
  explicit ProgressBar(bool wanted, int total = 1);
  ~ProgressBar();  // removes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows what is being done now.
  void show(std::string_view activity);
  // One more of the total is done.
  void advance();

  // The callback for work that counts its many steps itself. Empty where nothing is drawn; else
  // this must outlive it.
  cache::Progress follow(std::string activity);

  // Removes the bar until there is something new to draw: call before anything else is printed.
  void hide();

 private:
  static void write_log(LogLevel level, std::string_view message, void* context);
  void draw();  // under mutex_

  const bool visible_;
  std::mutex mutex_;
  std::int64_t total_;                                    // under mutex_
  std::int64_t done_ = 0;                                 // under mutex_
  std::string activity_;                                  // under mutex_
  bool is_drawn_ = false;                                 // under mutex_
  std::chrono::steady_clock::time_point next_drawing_{};  // of follow(); under mutex_
};

}  // namespace dorajit::cli
