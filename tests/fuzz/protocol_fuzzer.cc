// Feeds arbitrary bytes, in chunks of any size, to the protocol's parser. A parsed message must be
// the same after it is written and parsed again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "autotune/service/protocol/messages.h"

namespace dorajit::autotune::protocol {
namespace {

template <class Message>
void check(const Message& message, Result<Message> (*parse)(std::string_view)) {
  std::string line = to_line(message);
  if (line.empty() || line.find('\n') != line.size() - 1) std::abort();
  line.pop_back();
  const auto again = parse(line);
  if (!again || *again != message) std::abort();
}

void check_line(const std::string& line) {
  if (line.contains('\n') || line.size() >= kMaxRequestBytes) std::abort();
  if (const auto request = parse_request(line)) check(*request, parse_request);
  if (const auto answer = parse_answer(line)) check(*answer, parse_answer);
}

}  // namespace
}  // namespace dorajit::autotune::protocol

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dorajit::autotune::protocol;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t piece = 1 + static_cast<std::size_t>(data[0]);
  bytes.remove_prefix(1);
  LineSplitter lines(kMaxRequestBytes);
  while (!bytes.empty() && !lines.is_too_long()) {
    lines.feed(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (const auto line = lines.next()) check_line(*line);
  }
  return 0;
}
