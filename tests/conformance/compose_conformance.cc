#include "tests/conformance/compose_conformance.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "tests/conformance/compose_case.h"

namespace dorajit::tests {
namespace {

using kernels::ElementType;
using kernels::Variant;

constexpr std::size_t kMostFailures = 10;

std::vector<ComposeCase> cases_of(const Variant& variant) {
  std::vector<ComposeCase> cases;
  unsigned seed = 1;
  for (const ComposeShape& shape : {
           ComposeShape{1, 1, 0, 0},     // the smallest
           ComposeShape{3, 7, 0, 0},     // no vector fits a row
           ComposeShape{5, 1024, 0, 0},  // whole vectors, whole blocks of some configs
           ComposeShape{4, 4096, 0, 0},
           ComposeShape{3, 4099, 5, 0},  // ragged tail, rows aligned by their stride
           ComposeShape{2, 513, 7, 1},   // misaligned start
           ComposeShape{3, 640, 0, 1},
           ComposeShape{19, 24, 8, 2},
           ComposeShape{70, 33, 0, 0},
       }) {
    cases.emplace_back(variant, shape, 0.75, seed % 2 == 0 ? 0.3 : 0.02, seed);
    ++seed;
  }
  cases.emplace_back(variant, ComposeShape{2, 100, 0, 0}, -0.0, 0.2, seed++);
  cases.emplace_back(variant, ComposeShape{2, 100, 0, 0}, 1e300, 0.2, seed++);
  return cases;
}

}  // namespace

std::vector<Variant> widest_compose_variants() {
  using enum ElementType;
  return {{.op = kernels::Op::kCompose, .types = {kFloat32, kFloat32, kFloat32, kFloat32}},
          {.op = kernels::Op::kCompose, .types = {kBfloat16, kBfloat16, kFloat32, kBfloat16}}};
}

std::vector<std::string> check_compose(device::Device& device, launch::KernelCache& kernels,
                                       const std::vector<Variant>& variants,
                                       kernels::SpaceKind space) {
  std::vector<std::string> failures;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::atomic<long> checked{0};
  auto report = [&](std::string failure) {
    const std::scoped_lock lock(mutex);
    if (failures.size() < kMostFailures) failures.push_back(std::move(failure));
  };
  auto check_case = [&](const Variant& variant, const ComposeCase& one) {
    const int width = one.vector_width(device.info().traits.kind);
    ComposeBuffers buffers;
    for (const kernels::Config& config :
         kernels::config_space(variant, device.info().traits, width, space)) {
      const auto kernel = kernels.get(device, variant, config);
      if (!kernel) {
        report(kernel.error().message + "\n" + kernel.error().log);
        continue;
      }
      for (const Placement placement :
           {Placement::kOutOfPlace, Placement::kInPlaceOfLora, Placement::kInPlaceOfBase}) {
        if (!allows(variant, placement)) continue;
        if (auto failure = one.run(device, *kernel, placement, buffers); !failure.empty()) {
          report(std::move(failure));
        }
        ++checked;
      }
    }
  };
  std::vector<std::pair<Variant, ComposeCase>> tasks;
  for (const Variant& variant : variants) {
    for (ComposeCase& one : cases_of(variant)) tasks.emplace_back(variant, std::move(one));
  }
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < tasks.size(); at = next++) {
        check_case(tasks[at].first, tasks[at].second);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (checked == 0) failures.emplace_back("nothing was checked");
  return failures;
}

}  // namespace dorajit::tests
