// Splits a stream of bytes into lines of bounded length.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dorajit::autotune::protocol {

// Stores at most one incomplete line and the bytes fed after it.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next complete line without its newline, or nothing yet.
  std::optional<std::string> next();

  // Whether the incomplete line exceeds the maximum length.
  [[nodiscard]] bool is_too_long() const {
    return buffer_.size() - begin_ >= max_bytes_ &&
           buffer_.find('\n', begin_) >= begin_ + max_bytes_;
  }
  [[nodiscard]] bool has_begun() const { return begin_ < buffer_.size(); }

 private:
  std::size_t max_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of the bytes that have not been taken
};

}  // namespace dorajit::autotune::protocol
