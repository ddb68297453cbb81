#include "tests/apps/cli/cli_sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

namespace dorajit::test {
namespace {

// What the program and its compilers need of the surroundings; nothing else is passed on.
constexpr const char* kInherited[] = {"PATH",         "DORAJIT_NVRTC", "LD_LIBRARY_PATH",
                                      "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS",
                                      "VIRTUAL_ENV",  "CUDA_HOME",     "CUDA_PATH"};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Words::Words(const char* line) {
  std::istringstream words(line);
  for (std::string word; words >> word;) push_back(word);
}

void PrintTo(const CliResult& result, std::ostream* stream) {
  *stream << "exit code " << result.exit_code << ", " << result.err << result.out;
}

MATCHER_P(has_fields, fields, "") {
  for (const auto& [path, value] : fields.items()) {
    const nlohmann::json::json_pointer at(path);
    if (!arg.contains(at) || arg.at(at) != value) {
      *result_listener << path << " is not " << value;
      return false;
    }
  }
  return true;
}

testing::Matcher<const nlohmann::json&> has(const nlohmann::json& fields) {
  return has_fields(fields);
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ptrdiff_t count(const std::string& text, const std::string& part) {
  std::ptrdiff_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

nlohmann::json CliResult::document() const {
  auto parsed = nlohmann::json::parse(out, nullptr, false);
  EXPECT_FALSE(parsed.is_discarded()) << "no JSON document: " << out << err;
  return parsed.is_discarded() ? nlohmann::json() : parsed;
}

CliSandbox::CliSandbox() {
  std::string pattern = testing::TempDir() + "/dorajit-cli.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr) << pattern;
  folder_ = std::filesystem::canonical(pattern).string();
  for (const char* name : kInherited) {
    if (const char* value = std::getenv(name)) environment_[name] = value;
  }
  // Where an installation has it beside `dorajit`, a build tree has it elsewhere.
  environment_["PATH"] =
      std::filesystem::path(DORAJITD).parent_path().string() + ":" + environment_["PATH"];
  environment_["HOME"] = folder_;
  environment_["TMPDIR"] = folder_;
  environment_["DORAJIT_CACHE_DIR"] = cache_dir();
  environment_["DORAJIT_DAEMON_DIR"] = folder_;
  // Small and quick: what these tests are about is not the measurement.
  environment_["DORAJIT_TUNE_SECONDS"] = "0.2";
  environment_["DORAJIT_SCRATCH_BYTES"] = "33554432";
}

CliSandbox::~CliSandbox() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void CliSandbox::set(const std::string& variable, const std::string& value) {
  if (value.empty()) {
    environment_.erase(variable);
  } else {
    environment_[variable] = value;
  }
}

void CliSandbox::bring_disk_trouble(const std::string& trouble, const std::string& in, int step) {
  set("LD_PRELOAD", trouble.empty() ? "" : DORAJIT_DISK_TROUBLE);
  set("DISK_TROUBLE", trouble);
  set("DISK_TROUBLE_FOLDER", in);
  set("DISK_TROUBLE_STEP", std::to_string(step));
  set("DISK_TROUBLE_COUNT", file("steps"));
}

int CliSandbox::steps_of(const Words& arguments, const std::string& in) {
  bring_disk_trouble("count", in);
  succeed(arguments);
  bring_disk_trouble("");
  int steps = 0;
  std::ifstream(file("steps")) >> steps;
  return steps;
}

void CliSandbox::copy_cache_of(const std::string& folder) const {
  std::filesystem::remove_all(cache_dir());
  std::filesystem::copy(folder, cache_dir(), std::filesystem::copy_options::recursive);
  std::filesystem::permissions(cache_dir(), std::filesystem::perms::owner_all);
}

pid_t CliSandbox::spawn(Words words, const std::string& out, const std::string& err) const {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment_) variables.push_back(name + "=" + value);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  // A test runner may have been started with Ctrl-C ignored, which would be inherited.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &interrupt);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  pid_t process = -1;
  const int error = posix_spawn(&process, words.front().c_str(), &actions, &attributes,
                                pointers(words).data(), pointers(variables).data());
  EXPECT_EQ(error, 0) << words.front();
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

std::string CliSandbox::write(const std::string& name, const std::string& text) const {
  std::ofstream(file(name), std::ios::binary | std::ios::trunc) << text;
  return file(name);
}

CliResult CliSandbox::run(const Words& arguments) const {
  return run_words(with({DORAJIT_CLI}, arguments));
}

CliResult CliSandbox::succeed(const Words& arguments) const {
  CliResult result = run(arguments);
  EXPECT_EQ(result.exit_code, 0) << testing::PrintToString(arguments) << result.err << result.out;
  return result;
}

nlohmann::json CliSandbox::json(const Words& arguments) const {
  return succeed(with(arguments, {"--json"})).document();
}

CliResult CliSandbox::start_daemon(const Words& arguments) const {
  return run_words(with({DORAJITD}, arguments));
}

CliResult CliSandbox::run_words(const Words& words) const {
  const std::string out = folder_ + "/out";
  const std::string err = folder_ + "/err";
  CliResult result;
  result.exit_code = wait_for(spawn(words, out, err));
  result.out = read_file(out);
  result.err = read_file(err);
  return result;
}

CliResult CliSandbox::run_on_terminal(const Words& arguments) const {
  CliResult result;
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const std::string name = ptsname(terminal);
  // Held open, so that there is something to read from before and after the program writes.
  const int other_end = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  const std::string out = folder_ + "/out";
  const pid_t process = spawn(with({DORAJIT_CLI}, arguments), out, name);
  std::thread reader([&] {
    std::array<char, 4096> bytes{};
    for (;;) {
      const ssize_t count = read(terminal, bytes.data(), bytes.size());
      if (count <= 0) return;
      result.err.append(bytes.data(), static_cast<std::size_t>(count));
      if (result.err.ends_with('\x04')) return;
    }
  });
  result.exit_code = wait_for(process);
  EXPECT_EQ(::write(other_end, "\x04", 1), 1);  // the end, for the reader
  reader.join();
  result.err.pop_back();
  close(other_end);
  close(terminal);
  result.out = read_file(out);
  return result;
}

pid_t CliSandbox::start(const Words& arguments) const {
  return spawn(with({DORAJIT_CLI}, arguments), "/dev/null", "/dev/null");
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace dorajit::test
