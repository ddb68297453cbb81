#include "apps/cli/terminal/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <format>
#include <utility>

#include "runtime/base/printable_text.h"

namespace dorajit::cli {
namespace {

// Often enough to show progress, rarely enough to cost nothing.
constexpr std::chrono::milliseconds kBetweenDrawings{50};
constexpr std::string_view kClearLine = "\r\033[K";

bool stderr_is_terminal() {
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

void write(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// The characters that fit in a line of the terminal; a line that it wrapped would not be cleared.
std::size_t line_length() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (is_known ? std::size_t{size.ws_col} : 80) - 1;
}

}  // namespace

ProgressBar::ProgressBar(bool wanted, int total)
    : visible_(wanted && stderr_is_terminal()), total_(std::max(total, 1)) {
  if (visible_) set_log_sink(&ProgressBar::write_log, this);
}

ProgressBar::~ProgressBar() {
  if (!visible_) return;
  set_log_sink(nullptr, nullptr);
  hide();
}

void ProgressBar::show(std::string_view activity) {
  const std::scoped_lock lock(mutex_);
  activity_ = activity;
  draw();
}

void ProgressBar::advance() {
  const std::scoped_lock lock(mutex_);
  ++done_;
  draw();
}

cache::Progress ProgressBar::follow(std::string activity) {
  if (!visible_) return {};
  return [this, activity = std::move(activity)](std::int64_t done, std::int64_t in_all) {
    const auto now = std::chrono::steady_clock::now();
    const std::scoped_lock lock(mutex_);
    if (activity_ == activity && done < in_all && now < next_drawing_) return;
    next_drawing_ = now + kBetweenDrawings;
    activity_ = activity;
    total_ = std::max<std::int64_t>(in_all, 1);
    done_ = done;
    draw();
  };
}

void ProgressBar::hide() {
  const std::scoped_lock lock(mutex_);
  if (is_drawn_) write(kClearLine);
  is_drawn_ = false;
}

void ProgressBar::draw() {
  if (!visible_) return;
  constexpr int kWidth = 24;
  is_drawn_ = true;
  const std::int64_t filled = std::min(done_, total_) * kWidth / total_;
  const std::string line =
      std::format("[{}{}] {}/{} {}", std::string(static_cast<std::size_t>(filled), '#'),
                  std::string(static_cast<std::size_t>(kWidth - filled), '.'), done_, total_,
                  printable_line(activity_));
  write(std::format("{}{}", kClearLine, std::string_view(line).substr(0, line_length())));
}

void ProgressBar::write_log(LogLevel level, std::string_view message, void* context) {
  auto& bar = *static_cast<ProgressBar*>(context);
  const std::scoped_lock lock(bar.mutex_);
  write(std::format("{}dorajit: {}: {}\n", kClearLine, name(level), message));
  bar.draw();
}

}  // namespace dorajit::cli
