#include "apps/daemon/worker.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

#include "autotune/engine_factory.h"
#include "autotune/service/protocol/messages.h"
#include "kernel_templates/config.h"
#include "runtime/launch/problem.h"

namespace dorajit::daemon {
namespace {

using autotune::protocol::Answer;
using autotune::protocol::Failed;
using autotune::protocol::Tuned;
using autotune::protocol::TuneRequest;
using kernels::DeviceKind;
using launch::DeviceId;

// The device of this machine with that fingerprint.
std::optional<DeviceId> find_device(Engine& engine, const std::string& fingerprint) {
  const auto is_it = [&](const DeviceId& id) {
    const auto device = engine.device(id);
    return device && (*device)->info().fingerprint == fingerprint;
  };
  if (const DeviceId cpu{.kind = DeviceKind::kCpu}; fingerprint.starts_with("cpu") && is_it(cpu)) {
    return cpu;
  }
  for (int ordinal = 0; ordinal < engine.cuda_device_count(); ++ordinal) {
    const DeviceId cuda{.kind = DeviceKind::kCuda, .ordinal = ordinal};
    if (is_it(cuda)) return cuda;
  }
  return std::nullopt;
}

constexpr unsigned kGrace = 10;  // seconds

// Without its daemon, a worker that hangs would keep its claim on the problem for ever.
void set_alarm(double seconds) {
  ::alarm(seconds > 0 ? static_cast<unsigned>(seconds) + kGrace : 0);
}

// Where the system runs out of memory, it should kill this process before the clients.
void prefer_as_oom_victim() { std::ofstream("/proc/self/oom_score_adj") << 1000; }

Answer tune(Engine& engine, const TuneRequest& request) {
  const auto failed = [&](std::string reason) {
    return Failed{request.problem, request.device, std::move(reason)};
  };
  const auto problem = launch::parse_problem(request.problem);
  if (!problem) return failed("invalid problem key");
  const auto id = find_device(engine, request.device);
  if (!id) return failed("this machine has no such device");
  const auto answer = engine.prepare_again(*problem, *id);
  if (!answer) return failed(answer.error().message.substr(0, 1000));
  if (is_exact(answer->origin)) {
    return Tuned{.problem = request.problem,
                 .device = request.device,
                 .config = to_text(answer->config),
                 .median_ns = answer->median_ns,
                 .default_median_ns = answer->default_median_ns};
  }
  const std::string& why = answer->why_untuned;
  return failed("it could not be tuned: " +
                (why.empty() ? "the daemon's log says why" : why.substr(0, 900)));
}

}  // namespace

Status run_worker(const Settings& settings, double seconds) {
  prefer_as_oom_victim();
  const auto parts = autotune::make_engine(settings);
  for (std::string asked; std::getline(std::cin, asked);) {
    DORAJIT_ASSIGN(const auto request, autotune::protocol::parse_request(asked));
    const auto* wanted = std::get_if<TuneRequest>(&request);
    if (wanted == nullptr) continue;
    set_alarm(seconds);
    Answer answer = tune(*parts.engine, *wanted);
    set_alarm(0);
    // A store that has failed to write once keeps to memory, so another process takes the next job.
    const bool is_kept = parts.store->persistent();
    if (!is_kept) {
      answer =
          Failed{wanted->problem, wanted->device,
                 "winners cannot be kept: " + parts.store->reason_not_persistent().substr(0, 500)};
    }
    const std::string line = to_line(answer);
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
    if (!is_kept) break;
  }
  ::alarm(kGrace);  // closing a device may hang, too
  return {};
}

}  // namespace dorajit::daemon
