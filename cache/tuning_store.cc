#include "cache/tuning_store.h"

#include <unistd.h>

#include <utility>

#include "cache/tuning_store_state.h"

namespace dorajit::cache {

TuningStore::TuningStore(const std::string& cache_dir, const TuningStoreOptions& options)
    : cache_dir_(cache_dir),
      options_(options),
      state_(std::make_unique<State>(cache_dir, options).release()) {}

TuningStore::~TuningStore() {
  State* state = state_.load();
  // Inherited across a fork, its locks may be held by threads that are not here.
  if (state->process() == ::getpid()) delete state;
}

std::unique_ptr<TuningStore> TuningStore::open(const std::string& cache_dir,
                                               const TuningStoreOptions& options) {
  std::unique_ptr<TuningStore> store(new TuningStore(cache_dir, options));
  store->state().connect();
  return store;
}

TuningStore::State& TuningStore::state() {
  State* current = state_.load();
  if (current->process() == ::getpid()) return *current;
  // The parent's state is left as it is: destroying locks that may be held is undefined.
  auto child = current->copy_for_child();
  if (state_.compare_exchange_strong(current, child.get())) return *child.release();
  return *current;
}

std::optional<Winner> TuningStore::find_winner(std::string_view device, std::string_view problem,
                                               Patience patience) {
  return state().find_winner(device, problem, patience);
}

std::optional<Winner> TuningStore::find_overlay_winner(std::string_view device,
                                                       std::string_view problem) {
  return state().overlays().find_winner(device, problem);
}

void TuningStore::record(std::span<const Trial> trials, const Winner& winner) {
  state().record(trials, winner);
}

MergeCounts TuningStore::merge(std::span<const Trial> trials) { return state().merge(trials); }

std::optional<ImportCounts> TuningStore::import_trials(std::span<const Trial> trials,
                                                       std::string_view source,
                                                       const Progress& progress) {
  return state().import_trials(trials, source, progress);
}

std::optional<UndoCounts> TuningStore::undo_import(std::string_view id) {
  return state().undo_import(id);
}

std::vector<ImportRecord> TuningStore::imports() { return state().imports(); }

std::optional<std::int64_t> TuningStore::rebuild_winners() { return state().rebuild_winners(); }

std::vector<Winner> TuningStore::winners() { return state().winners(); }

std::vector<Winner> TuningStore::winners_of_variant(std::string_view variant) {
  std::vector<Winner> winners = state().winners_of_variant(variant);
  for (Winner& winner : state().overlays().winners_of_variant(variant)) {
    winners.push_back(std::move(winner));
  }
  return winners;
}

std::vector<Trial> TuningStore::trials(std::string_view device, std::string_view problem) {
  return state().trials(device, problem);
}

std::vector<Trial> TuningStore::trials() { return state().trials(); }

std::vector<Trial> TuningStore::bad_trials(std::string_view device) {
  return state().bad_trials(device);
}

std::int64_t TuningStore::trial_count() { return state().trial_count(); }

std::string TuningStore::location() { return state().location(); }

bool TuningStore::persistent() { return state().reason_not_persistent().empty(); }

std::string TuningStore::reason_not_persistent() { return state().reason_not_persistent(); }

std::optional<TuningClaim> TuningStore::try_claim(std::string_view device,
                                                  std::string_view problem) {
  return TuningClaim::acquire(cache_dir_, device, problem, std::chrono::milliseconds(0),
                              options_.trust);
}

std::optional<TuningClaim> TuningStore::wait_for_claim(std::string_view device,
                                                       std::string_view problem,
                                                       std::chrono::milliseconds wait) {
  return TuningClaim::acquire(cache_dir_, device, problem, wait, options_.trust);
}

}  // namespace dorajit::cache
