// Runs of the `dorajit` program with a cache folder and an environment of their own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace dorajit::test {

// The words of a command line, one by one or between blanks.
class Words : public std::vector<std::string> {
 public:
  using vector::vector;
  Words(const char* line);  // NOLINT(google-explicit-constructor)
};

// Exit codes.
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kUnavailable = 3;

struct CliResult {
  int exit_code = 0;  // as a shell has it: 128 + signal when a signal ended it
  std::string out;
  std::string err;

  // The one document on standard output; a failed expectation and null if there is none.
  [[nodiscard]] nlohmann::json document() const;
};

void PrintTo(const CliResult& result, std::ostream* stream);  // NOLINT: GoogleTest's name

// A run that ended with the exit code and a message with this part.
MATCHER_P2(fails, exit_code, part, "") {
  return arg.exit_code == exit_code && arg.err.find(part) != std::string::npos;
}

// A document with these values: JSON pointers, and what each points to.
testing::Matcher<const nlohmann::json&> has(const nlohmann::json& fields);

Words with(Words words, const Words& more);

std::string read_file(const std::string& path);

// How often a text has a part.
std::ptrdiff_t count(const std::string& text, const std::string& part);

class CliSandbox {
 public:
  CliSandbox();
  ~CliSandbox();
  CliSandbox(const CliSandbox&) = delete;
  CliSandbox& operator=(const CliSandbox&) = delete;

  [[nodiscard]] std::string folder() const { return folder_; }
  [[nodiscard]] std::string cache_dir() const { return folder_ + "/cache"; }
  [[nodiscard]] std::string database() const { return cache_dir() + "/tuning.db"; }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_ + "/" + name; }

  // Writes a file of the folder: its path.
  std::string write(const std::string& name, const std::string& text) const;

  // Later runs have the variable; an empty value takes it away.
  void set(const std::string& variable, const std::string& value);

  // Later runs have the trouble of tests/disk_trouble in a folder, at a step; "" ends it.
  void bring_disk_trouble(const std::string& trouble, const std::string& in = "", int step = 0);

  // The number of steps that a run, which must succeed, takes in that folder.
  int steps_of(const Words& arguments, const std::string& in);

  // Makes the cache folder a copy of another one.
  void copy_cache_of(const std::string& folder) const;

  [[nodiscard]] CliResult run(const Words& arguments) const;

  // A run that must succeed; a failed expectation otherwise.
  CliResult succeed(const Words& arguments) const;

  // The document of a run with --json that must succeed.
  [[nodiscard]] nlohmann::json json(const Words& arguments) const;

  // Another program, by its path and its arguments.
  [[nodiscard]] CliResult run_words(const Words& words) const;

  // `dorajit` with standard error on a terminal: what appeared there.
  [[nodiscard]] CliResult run_on_terminal(const Words& arguments) const;

  // Starts dorajitd in the background; back when it can be asked. Ended by `dorajit daemon stop`.
  [[nodiscard]] CliResult start_daemon(const Words& arguments = {}) const;

  // Starts a run without waiting; the caller waits for the process. Its output is dropped.
  [[nodiscard]] pid_t start(const Words& arguments) const;

 private:
  // The first word is the program.
  [[nodiscard]] pid_t spawn(Words words, const std::string& out, const std::string& err) const;

  std::string folder_;
  std::map<std::string, std::string> environment_;
};

class CliTest : public testing::Test {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const { return sandbox_.file(name); }

  CliSandbox sandbox_;
};

// The exit code of a process that this one started.
int wait_for(pid_t process);

}  // namespace dorajit::test
