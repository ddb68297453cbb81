// Enters a config in the launch journal while its kernel may crash or hang the process.
#pragma once

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
};

// The entry exists during the object's lifetime.
class JournalEntry {
 public:
  explicit JournalEntry(const JournalPlace& place) : journal_(place.journal) {
    if (journal_ != nullptr) journal_->enter(place.scope, place.problem, place.config);
  }
  ~JournalEntry() {
    if (journal_ != nullptr) journal_->leave();
  }
  JournalEntry(const JournalEntry&) = delete;
  JournalEntry& operator=(const JournalEntry&) = delete;

 private:
  cache::LaunchJournal* journal_;
};

}  // namespace dorajit::autotune
