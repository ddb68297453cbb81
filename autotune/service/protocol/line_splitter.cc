#include "autotune/service/protocol/line_splitter.h"

namespace dorajit::autotune::protocol {

std::optional<std::string> LineSplitter::next() {
  if (is_too_long()) return std::nullopt;
  const std::size_t end = buffer_.find('\n', begin_);
  if (end == std::string::npos) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    return std::nullopt;
  }
  std::string line = buffer_.substr(begin_, end - begin_);
  begin_ = end + 1;
  return line;
}

}  // namespace dorajit::autotune::protocol
