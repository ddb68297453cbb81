#include "autotune/service/client/daemon_question.h"

#include <poll.h>

#include <algorithm>
#include <format>
#include <vector>

#include "autotune/service/client/daemon_connection.h"
#include "autotune/service/protocol/socket_path.h"

namespace dorajit::autotune {

using std::chrono::steady_clock;

Result<std::string> ask_daemon(const std::string& folder, const protocol::Hello& own,
                               const protocol::Request& request,
                               std::chrono::milliseconds timeout) {
  DORAJIT_TRY(protocol::check_socket_path(protocol::socket_path(folder)));
  Remarks remarks;
  const auto connection = DaemonConnection::open(folder, own, remarks);
  say(remarks);
  if (connection == nullptr) {
    return fail(
        StatusCode::kIoError,
        std::format("no daemon listens in {}; start one with `dorajit daemon start`", folder));
  }
  connection->ask(request);
  const auto deadline = steady_clock::now() + timeout;
  std::vector<protocol::Answer> answers;
  bool is_of_use = true;
  while (is_of_use) {
    is_of_use = connection->serve(answers);
    for (protocol::Answer& answer : answers) {
      if (auto* text = std::get_if<protocol::Text>(&answer)) return std::move(text->text);
    }
    answers.clear();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) break;
    pollfd wanted{.fd = connection->socket(), .events = connection->wanted_events(), .revents = 0};
    if (is_of_use) (void)::poll(&wanted, 1, static_cast<int>(left.count()));
  }
  if (!connection->refusal().empty()) {
    return fail(StatusCode::kIoError,
                std::format("the daemon in {} does not answer: {}", folder, connection->refusal()));
  }
  return fail(StatusCode::kIoError, std::format("the daemon in {} does not answer", folder));
}

}  // namespace dorajit::autotune
