#include "tests/apps/daemon/running_daemon.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <thread>

#include "autotune/service/daemon/daemon.h"
#include "autotune/service/protocol/socket_path.h"
#include "runtime/base/log.h"
#include "runtime/device/cpu/cpu_device.h"
#include "tests/fakes/small_disk.h"
#include "tests/variants.h"

namespace dorajit::tests {
namespace {

using namespace autotune::protocol;  // NOLINT(google-build-using-namespace): what this is about

// Ends a test that hangs. On a machine that is busy otherwise a problem may take minutes.
constexpr std::chrono::seconds kLongestWait{480};

// A machine that is at leisure, whatever else the tests' machine does.
class NoLoad final : public autotune::DeviceLoad {
 public:
  std::string idlest_gpu(const std::string&) override { return {}; }
  bool is_busy(const std::string&, const std::string&) override { return false; }
};

}  // namespace

RunningDaemon::RunningDaemon() {
  std::string pattern = "/tmp/dorajitd.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

RunningDaemon::~RunningDaemon() {
  if (pid_ > 0) {
    signal(SIGKILL);
    wait();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void RunningDaemon::start() {
  pid_ = ::fork();
  ASSERT_GE(pid_, 0);
  if (pid_ != 0) return;
  const int log = ::open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(log, STDERR_FILENO);
  ::dup2(log, STDOUT_FILENO);
  run();
  ::_exit(127);
}

int RunningDaemon::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void RunningDaemon::signal(int number) const { ::kill(pid_, number); }

Hello RunningDaemon::hello() const { return own_hello(cache_dir()); }

std::string RunningDaemon::log() const {
  std::ifstream file(folder_ + "/log", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> RealDaemon::command() const {
  std::vector<std::string> words = {DORAJITD,           "--foreground", "--cache-dir", cache_dir(),
                                    "--duty",           "100",          "--busy-duty", "100",
                                    "--worker-seconds", "600"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  return words;
}

void RealDaemon::run() const {
  if (!disk_.empty() && !cache::mount_small_disk(cache_dir(), disk_)) return;
  if (!disk_.empty()) ::chmod(cache_dir().c_str(), 0700);
  ::setenv("DORAJIT_DAEMON_DIR", socket_folder().c_str(), 1);
  ::setenv("DORAJIT_TUNE_SECONDS", "0.2", 1);
  ::setenv("DORAJIT_SCRATCH_BYTES", "33554432", 1);
  ::setenv("DORAJIT_DATABASES", "none", 1);
  ::setenv("DORAJIT_LOG", "info", 1);
  for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = command();
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (!has_streams_) ::close(stream);
  }
  ::execv(DORAJITD, pointers.data());
}

autotune::WorkerRules ScriptedDaemon::quick_rules() {
  return {.command = {},
          .time_limit = std::chrono::seconds(600),
          .max_bytes = 0,
          .duty = 1,
          .busy_duty = 1};
}

ScriptedDaemon::ScriptedDaemon(std::string spoils, autotune::WorkerRules rules,
                               std::string nvml_library)
    : rules_(std::move(rules)), nvml_library_(std::move(nvml_library)) {
  const std::string script =
      "while read -r line; do\n"
      "case \"$line\" in " +
      spoils +
      " *) ;; esac\n"
      "end=',\"config\":\"b64\",\"median_ns\":1,\"default_median_ns\":2}'\n"
      "printf '%s%s\\n' \"${line%?}\" \"$end\" | sed 's/\"type\":\"tune\"/\"type\":\"tuned\"/'\n"
      "done\n";
  rules_.command = {"/bin/sh", "-c", script};
  start();
}

void ScriptedDaemon::run() const {
  set_log_level(LogLevel::kInfo);
  std::unique_ptr<autotune::DeviceLoad> load = std::make_unique<NoLoad>();
  if (!nvml_library_.empty()) load = autotune::DeviceLoad::of_this_machine(nvml_library_);
  const auto end =
      autotune::run_daemon({.folder = socket_folder(), .hello = hello(), .worker = rules_}, *load);
  ::_exit(end ? static_cast<int>(*end) : 99);
}

PlainClient::PlainClient(const std::string& socket_folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(socket_folder);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto connects = [&] {
    socket_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = kLongestWait.count(), .tv_usec = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return ::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  };
  EXPECT_TRUE(becomes_true(connects)) << "nobody listens on " << path;
}

PlainClient::PlainClient(const RunningDaemon& daemon) : PlainClient(daemon.socket_folder()) {
  send(Request(daemon.hello()));
  EXPECT_EQ(expect<Hello>(), daemon.hello());
}

bool PlainClient::send(const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count =
        ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

std::optional<Answer> PlainClient::receive() {
  for (;;) {
    if (const auto line = lines_.next()) {
      const auto answer = parse_answer(*line);
      EXPECT_TRUE(answer) << *line;
      return answer ? std::optional(*answer) : std::nullopt;
    }
    std::array<char, 4096> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return std::nullopt;
    lines_.feed({bytes.data(), static_cast<std::size_t>(count)});
  }
}

void PlainClient::complain(const std::optional<Answer>& answer) {
  ADD_FAILURE() << (answer ? to_line(*answer) : std::string("the connection was closed"));
}

nlohmann::json PlainClient::status() {
  send(Request(StatusRequest{}));
  return nlohmann::json::parse(expect<Text>().text, nullptr, false);
}

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

launch::Problem cpu_problem(std::int64_t cols) {
  return launch::make_problem(tests::float_compose(), kernels::DeviceKind::kCpu, {16, cols});
}

TuneRequest cpu_request(std::int64_t cols) {
  return {.problem = to_text(cpu_problem(cols)), .device = cpu_fingerprint()};
}

std::string cpu_fingerprint() {
  static const std::string found = device::CpuDevice().info().fingerprint;
  return found;
}

}  // namespace dorajit::tests
