#include "tests/conformance/op_conformance.h"

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "kernel_templates/config.h"
#include "tests/conformance/parallel_for.h"

namespace dorajit::tests {
namespace {

using kernels::Config;
using kernels::Variant;

constexpr std::size_t kMaxFailures = 10;

class Failures {
 public:
  void add(std::string failure) {
    const std::scoped_lock lock(mutex_);
    if (lines_.size() < kMaxFailures) lines_.push_back(std::move(failure));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::vector<Config> configs_of(const device::Device& device, const Variant& variant,
                               std::size_t turn, int width, Configs configs) {
  const auto kind = configs == Configs::kComprehensive ? kernels::SpaceKind::kComprehensive
                                                       : kernels::SpaceKind::kSlim;
  std::vector<Config> space = kernels::config_space(variant, device.info().traits, width, kind);
  if (configs == Configs::kOneInTurn) space = {space[turn % space.size()]};
  return space;
}

std::string kernel_name(const Variant& variant, const Config& config) {
  return to_text(variant) + "/" + to_text(config);
}

struct Task {
  std::size_t turn;  // the number of the variant
  Variant variant;
  CaseSpec spec;
};

}  // namespace

std::vector<std::string> check_op(device::Device& device, launch::KernelCache& kernels,
                                  const Variants& variants, Configs configs, CaseList list,
                                  const Slice& slice) {
  std::vector<Task> tasks;
  for (std::size_t turn = 0; turn < variants.size(); ++turn) {
    for (const CaseSpec& spec : case_list(variants[turn], list)) {
      tasks.push_back({turn, variants[turn], spec});
    }
  }
  Failures failures;
  std::atomic<long> checked{0};
  const auto kind = device.info().traits.kind;
  const unsigned threads = slice.is_whole() ? processors() : 1;

  // Builds all kernels before any case runs, so that no two threads wait for one kernel.
  std::vector<std::pair<Variant, Config>> builds;
  std::set<std::pair<std::size_t, int>> widths;
  std::set<std::string> named;  // kernels of every slice
  std::set<std::string> ours;
  for (const Task& task : tasks) {
    const int width = vector_width(task.variant, task.spec, kind);
    if (!widths.emplace(task.turn, width).second) continue;
    for (const Config& config : configs_of(device, task.variant, task.turn, width, configs)) {
      // Several alignments share a kernel.
      const std::string name = kernel_name(task.variant, config);
      if (!named.insert(name).second || !slice.has(named.size() - 1)) continue;
      ours.insert(name);
      builds.emplace_back(task.variant, config);
    }
  }
  const auto build = [&](std::size_t i) {
    const auto& [variant, config] = builds[i];
    if (const auto kernel = kernels.get(device, variant, config); !kernel) {
      failures.add(kernel.error().message + "\n" + kernel.error().log);
    }
  };
  parallel_for(builds.size(), build, threads);

  const auto run = [&](std::size_t i) {
    const auto& [turn, variant, spec] = tasks[i];
    const OpCase one(variant, spec);
    OpBuffers buffers;
    for (const Config& config :
         configs_of(device, variant, turn, vector_width(variant, spec, kind), configs)) {
      if (!ours.contains(kernel_name(variant, config))) continue;
      const auto kernel = kernels.get(device, variant, config);
      if (!kernel) continue;
      for (const Placement& placement : placements(variant)) {
        if (auto failure = one.run(device, *kernel, placement, buffers); !failure.empty()) {
          failures.add(std::move(failure));
        }
        ++checked;
      }
    }
  };
  parallel_for(tasks.size(), run, threads);
  if (checked == 0) failures.add("nothing was checked");
  return failures.take();
}

}  // namespace dorajit::tests
