// Records which config is being launched for the first time, in case the process crashes or hangs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/files/trusted_directory.h"
#include "kernel_templates/config.h"

namespace dorajit::cache {

// A kernel that hangs a GPU can only be stopped by killing the process. Its config is therefore
// written to a file before the launch. Thread-safe; one object serves a process. No call fails: if
// nothing can be written, nothing is recorded, and that is logged once.
class LaunchJournal {
 public:
  virtual ~LaunchJournal() = default;

  // Recorded as long as it exists, which must be less long than its journal.
  class Entry {
   public:
    Entry() = default;
    virtual ~Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
  };

  // Call before the first launch; destroy the entry, which may be null, when the launch has
  // returned. `scope` is everything that a config's behaviour depends on: device, templates,
  // variant. `problem` is for readers of the entry.
  [[nodiscard]] virtual std::unique_ptr<Entry> enter(std::string_view scope,
                                                     std::string_view problem,
                                                     const kernels::Config& config) = 0;

  // The configs that processes which have ended had entered under `scope` without leaving.
  virtual std::vector<kernels::Config> crashed_configs(std::string_view scope) = 0;
  // Removes the entries of configs that are now recorded elsewhere.
  virtual void forget(std::string_view scope, std::span<const kernels::Config> recorded) = 0;

  // Stores its entries in `cache_dir`/journal, a file for each at a time; stores nothing if
  // `cache_dir` is empty.
  static std::unique_ptr<LaunchJournal> open(const std::string& cache_dir, const Trust& trust = {});
};

}  // namespace dorajit::cache
