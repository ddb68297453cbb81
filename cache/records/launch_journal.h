// Which config is being launched for the first time, in case the process does not survive it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/files/trusted_directory.h"
#include "kernel_templates/config.h"

namespace dorajit::cache {

// A kernel that hangs a GPU cannot be ended by the process that launched it; the process has to be.
// So its name is written down before it is launched. One tuning at a time uses an object. No call
// fails: where nothing can be written, nothing is remembered, and that is said once.
class LaunchJournal {
 public:
  virtual ~LaunchJournal() = default;

  // Before the first launch. `scope` is what a config's behaviour depends on: device, templates,
  // variant. `problem` is for who reads the entry.
  virtual void enter(std::string_view scope, std::string_view problem,
                     const kernels::Config& config) = 0;
  // It came back.
  virtual void leave() = 0;

  // What processes that are no more had entered under `scope` and never left.
  virtual std::vector<kernels::Config> crashed_configs(std::string_view scope) = 0;
  // Drops those of them that are recorded elsewhere by now.
  virtual void forget(std::string_view scope, std::span<const kernels::Config> recorded) = 0;

  // Keeps its entries in `cache_dir`/journal, one file per process; remembers nothing if that is
  // empty.
  static std::unique_ptr<LaunchJournal> open(const std::string& cache_dir, const Trust& trust = {});
};

}  // namespace dorajit::cache
