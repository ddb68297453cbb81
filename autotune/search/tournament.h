// Successive halving: decides which candidates are measured next and which one wins. Measures
// nothing itself.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "autotune/search/measurement.h"
#include "cache/records/tuning_records.h"

namespace dorajit::autotune {

// The default, candidate 0, competes with all others. In each stage, every running candidate is
// measured in every round; at the end of a stage the better half of the challengers stays, until
// one is left. Challengers that are far behind do not stay until the end of the stage. The last one
// is compared with the default in a final stage of fresh rounds, which alone decide: the rounds by
// which the best of many was selected overestimate it. The default takes part in every round, and
// in rounds of its own if it is alone.
//
// Times are compared relative to the time of the entire round, so that a disturbance of a round
// affects all candidates alike. A stage lasts until its challengers' times are precise enough for
// the cut: few rounds with little noise, many with much noise. Disturbed rounds are not counted,
// unless the disturbance persists.
class Tournament {
 public:
  explicit Tournament(std::size_t candidates);

  // The participants of the next round, the default first. Empty once the default has failed.
  [[nodiscard]] std::span<const std::size_t> running() const { return running_; }

  // Times of the running candidates, in their order. NaN for a candidate that failed: it is
  // eliminated.
  void add_round(std::span<const double> samples);

  // Whether the stage needs no more rounds.
  [[nodiscard]] bool stage_is_decided() const;
  // Whether the stage must go on even if its time is over: it needs a first round, and the final
  // stage needs the minimum number of rounds for a decision.
  [[nodiscard]] bool stage_needs_rounds() const;
  // Eliminates half of the challengers, or ends the final stage.
  void end_stage();
  // Includes the current stage; 0 when the tournament is over.
  [[nodiscard]] int stages_left() const;
  // Eliminates the challenger of the final stage; the next best one takes its place.
  void disqualify_challenger();

  // The challenger in the final stage; 0 if there is none.
  [[nodiscard]] std::size_t challenger() const { return is_final() ? running_.back() : 0; }
  // The result of the final comparison; nothing if there were too few rounds.
  [[nodiscard]] std::optional<cache::PairedComparison> final_comparison() const;
  // Candidate 0, or the challenger if it was faster in the final comparison.
  [[nodiscard]] std::size_t winner() const;

  [[nodiscard]] int disturbed_rounds() const { return disturbed_rounds_; }
  [[nodiscard]] int samples_taken() const { return samples_taken_; }
  // The times of the counted rounds; for the participants of the final stage, only those of that
  // stage.
  [[nodiscard]] std::span<const double> times(std::size_t candidate) const {
    return records_[candidate].times;
  }

 private:
  struct Record {
    std::vector<double> times;
    std::vector<double> relative;  // logarithms of the time relative to that of the entire round
    UsualTime usual;               // updated every few rounds
  };

  [[nodiscard]] bool is_final() const { return running_.size() == 2; }
  [[nodiscard]] bool is_last_stage() const { return running_.size() <= 2; }
  [[nodiscard]] std::size_t rounds() const { return records_[running_.back()].times.size(); }
  [[nodiscard]] std::vector<double> log_ratios() const;
  [[nodiscard]] bool reject(std::span<const double> samples);
  void rank_challengers();
  // Leaves at least one challenger.
  void eliminate_far_behind();
  // Makes times relative to those of the running candidates: without it, the rounds before an
  // elimination have another level than those after it.
  void relate_to_running();
  void start_final();
  void promote_runner_up();

  std::vector<Record> records_;
  std::vector<std::size_t> running_;  // after a stage, challengers are sorted from best to worst
  std::vector<std::size_t> beaten_;   // eliminated by other challengers; the best one last
  int stage_ = 0;
  int rejected_in_a_row_ = 0;
  int disturbed_rounds_ = 0;
  int samples_taken_ = 0;
  bool is_over_ = false;
};

}  // namespace dorajit::autotune
