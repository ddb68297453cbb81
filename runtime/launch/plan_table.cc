#include "runtime/launch/plan_table.h"

#include <algorithm>
#include <bit>

#include "kernel_templates/integer_types.h"
#include "kernel_templates/spaces.h"
#include "kernel_templates/template.h"

namespace dorajit::launch {
namespace {

constexpr std::size_t kFirstCapacity = 256;  // a power of two, like every capacity

std::size_t hash_of(const PlanKey& key) {
  std::uint64_t mixed =
      key.what ^ (std::bit_cast<std::uintptr_t>(key.operation) * 0xc2b2ae3d27d4eb4fU);
  for (const std::int64_t size : key.sizes) {
    mixed = std::rotl(mixed, 21) ^ (static_cast<std::uint64_t>(size) * 0x9e3779b97f4a7c15U);
  }
  mixed ^= mixed >> 32;
  mixed *= 0xd6e8feb86659fd93U;
  mixed ^= mixed >> 32;
  return static_cast<std::size_t>(mixed);
}

}  // namespace

PlanKey make_plan_key(const Problem& problem, const DeviceId& device) {
  // The packed fields take 1 + 12 * 4 + 3 + 1 + 11 bits; a vector width is a power of two or 0.
  static_assert(static_cast<int>(std::rbegin(kernels::kIntegerTypes)->type) < 16 &&
                kernels::kMaxOperands == 12);
  std::uint64_t what = static_cast<std::uint64_t>(problem.variant.broadcast);
  for (const kernels::ElementType type : problem.variant.types) {
    what = what << 4 | static_cast<std::uint64_t>(type);
  }
  what = what << 3 |
         static_cast<std::uint64_t>(std::bit_width(static_cast<unsigned>(problem.vector_width)));
  what = what << 1 | static_cast<std::uint64_t>(device.kind);
  what = what << 11 | static_cast<std::uint64_t>(device.ordinal);
  return {.operation = problem.variant.operation, .what = what, .sizes = problem.key};
}

// Open addressing; at most half full, so that a search soon reaches an empty slot.
struct PlanTable::Table {
  explicit Table(std::size_t capacity) : slots(capacity) {}

  std::vector<std::atomic<const LaunchPlan*>> slots;
  std::size_t used = 0;

  // The plan of a key, or null. Loads each slot once and returns that value: another thread may
  // fill an empty slot, with another key, right after it was read.
  [[nodiscard]] const LaunchPlan* find(const PlanKey& key) const {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t at = hash_of(key) & mask;; at = (at + 1) & mask) {
      const LaunchPlan* plan = slots[at].load(std::memory_order_acquire);
      if (plan == nullptr || plan->key == key) return plan;
    }
  }

  // For writers, which exclude each other.
  void put(const LaunchPlan* plan) {
    const std::size_t mask = slots.size() - 1;
    for (std::size_t at = hash_of(plan->key) & mask;; at = (at + 1) & mask) {
      const LaunchPlan* present = slots[at].load(std::memory_order_relaxed);
      if (present != nullptr && present->key != plan->key) continue;
      if (present == nullptr) ++used;
      slots[at].store(plan, std::memory_order_release);
      return;
    }
  }
};

PlanTable::PlanTable() {
  tables_.push_back(std::make_unique<Table>(kFirstCapacity));
  current_.store(tables_.back().get(), std::memory_order_release);
}

PlanTable::~PlanTable() = default;

std::size_t LaunchPlan::fitting(const kernels::Sizes& sizes, bool is_loaded) const {
  const kernels::Template& used = kernels::template_of(problem.variant);
  if (!used.fits_by_call) return 0;
  const auto fits = [&](const PlanChoice& choice) {
    if (is_loaded && choice.kernel == nullptr) return false;
    return used
        .why_config_does_not_fit(problem.variant, device->info().traits, sizes, choice.config)
        .empty();
  };
  return static_cast<std::size_t>(std::ranges::find_if(choices, fits) - choices.begin());
}

const LaunchPlan* PlanTable::find(const PlanKey& key) const {
  return current_.load(std::memory_order_acquire)->find(key);
}

const LaunchPlan* PlanTable::insert(LaunchPlan plan) {
  const std::scoped_lock lock(mutex_);
  Table* table = current_.load(std::memory_order_relaxed);
  const LaunchPlan* const present = table->find(plan.key);
  plan.number = present != nullptr ? present->number : by_number_.size();
  by_number_.resize(std::max(by_number_.size(), plan.number + 1));
  plans_.push_back(std::make_unique<const LaunchPlan>(std::move(plan)));
  by_number_[plans_.back()->number] = plans_.back().get();
  if ((table->used + 1) * 2 > table->slots.size()) {
    auto larger = std::make_unique<Table>(table->slots.size() * 2);
    for (const auto& slot : table->slots) {
      if (const LaunchPlan* moved = slot.load(std::memory_order_relaxed)) larger->put(moved);
    }
    table = larger.get();
    tables_.push_back(std::move(larger));
  }
  table->put(plans_.back().get());
  current_.store(table, std::memory_order_release);
  return plans_.back().get();
}

const LaunchPlan* PlanTable::at(std::size_t number) const {
  const std::scoped_lock lock(mutex_);
  return number < by_number_.size() ? by_number_[number] : nullptr;
}

const LaunchPlan* PlanTable::find_substitute(const Problem& problem,
                                             const device::Device& device) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& plan : plans_) {
    if (plan->device == &device && plan->problem.variant == problem.variant &&
        kernels::why_config_is_invalid(problem.variant, device.info().traits, problem.vector_width,
                                       problem.largest_sizes(), plan->answer.config)
            .empty()) {
      return plan.get();
    }
  }
  return nullptr;
}

}  // namespace dorajit::launch
