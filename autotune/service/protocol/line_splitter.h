// Lines out of a stream of bytes, of bounded length.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dorajit::autotune::protocol {

// Holds no more than one unfinished line and what was fed after it.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }

  // The next whole line without its end, or nothing yet.
  std::optional<std::string> next();

  // Whether the line that has begun is longer than any may be.
  [[nodiscard]] bool is_too_long() const {
    return buffer_.size() - begin_ >= most_bytes_ &&
           buffer_.find('\n', begin_) >= begin_ + most_bytes_;
  }
  [[nodiscard]] bool has_begun() const { return begin_ < buffer_.size(); }

 private:
  std::size_t most_bytes_;
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been taken
};

}  // namespace dorajit::autotune::protocol
