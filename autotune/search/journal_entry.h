// Enters a config in the launch journal while its kernel may crash or hang the process.
#pragma once

#include <memory>
#include <string_view>

#include "cache/records/launch_journal.h"
#include "kernel_templates/config.h"

namespace dorajit::autotune {

// The identity under which a launch is entered.
struct JournalPlace {
  cache::LaunchJournal* journal = nullptr;  // null: nothing is entered
  std::string_view scope{};
  std::string_view problem{};
  kernels::Config config{};

  // Entered until the result, which may be null, is destroyed.
  [[nodiscard]] std::unique_ptr<cache::LaunchJournal::Entry> enter() const {
    return journal != nullptr ? journal->enter(scope, problem, config) : nullptr;
  }
};

}  // namespace dorajit::autotune
