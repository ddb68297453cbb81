// Names a config in the launch journal while its kernel may take the process with it.
#pragma once

#include <string>

#include "autotune/verification.h"
#include "cache/launch_journal.h"
#include "kernel_templates/config.h"
#include "runtime/launch/problem.h"

namespace dorajit::autotune {

// Does nothing where there is no journal. Refers to its arguments.
class JournalEntry final : public Verifier::Watch {
 public:
  JournalEntry(cache::LaunchJournal* journal, const std::string& scope,
               const launch::Problem& problem, const kernels::Config& config)
      : journal_(journal), scope_(scope), problem_(problem), config_(config) {}

  void begin() override {
    if (journal_ != nullptr) journal_->enter(scope_, to_text(problem_), config_);
  }
  void end() override {
    if (journal_ != nullptr) journal_->leave();
  }

 private:
  cache::LaunchJournal* journal_;
  const std::string& scope_;
  const launch::Problem& problem_;
  const kernels::Config& config_;
};

}  // namespace dorajit::autotune
