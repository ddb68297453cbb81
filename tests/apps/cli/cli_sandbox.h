// Runs of the `dorajit` program with a cache folder and an environment of their own.
#pragma once

#include <sys/types.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dorajit::test {

struct CliResult {
  int exit_code = 0;  // as a shell has it: 128 + signal when a signal ended it
  std::string out;
  std::string err;

  // The one document on standard output; a failed expectation and null if there is none.
  [[nodiscard]] nlohmann::json document() const;
};

class CliSandbox {
 public:
  CliSandbox();
  ~CliSandbox();
  CliSandbox(const CliSandbox&) = delete;
  CliSandbox& operator=(const CliSandbox&) = delete;

  [[nodiscard]] std::string folder() const { return folder_; }
  [[nodiscard]] std::string cache_dir() const { return folder_ + "/cache"; }

  // Later runs have the variable; an empty value takes it away.
  void set(const std::string& variable, const std::string& value);

  [[nodiscard]] CliResult run(const std::vector<std::string>& arguments) const;

  // Another program, by its path and its arguments.
  [[nodiscard]] CliResult run_words(const std::vector<std::string>& words) const;

  // `dorajit` with standard error on a terminal: what appeared there.
  [[nodiscard]] CliResult run_on_terminal(const std::vector<std::string>& arguments) const;

  // Starts dorajitd in the background; back when it can be asked. Ended by `dorajit daemon drain`.
  [[nodiscard]] CliResult start_daemon(const std::vector<std::string>& arguments = {}) const;

  // Starts a run without waiting; the caller waits for the process. Its output is dropped.
  [[nodiscard]] pid_t start(const std::vector<std::string>& arguments) const;

 private:
  // The first word is the program.
  [[nodiscard]] pid_t spawn(std::vector<std::string> words, const std::string& out,
                            const std::string& err) const;

  std::string folder_;
  std::map<std::string, std::string> environment_;
};

// The exit code of a process that this one started.
int wait_for(pid_t process);

}  // namespace dorajit::test
