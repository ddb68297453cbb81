// Successive halving: who is measured next, and who wins. Measures nothing itself.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "autotune/search/disturbed_rounds.h"
#include "autotune/search/robust_statistics.h"
#include "cache/records/tuning_records.h"

namespace dorajit::autotune {

// The default, candidate 0, meets all others. In each stage every candidate that is still running
// is measured in every round; at its end the better half of the challengers stays, until one is
// left. That one meets the default in a duel of fresh rounds, which alone decide: rounds in which
// the best of many looked good say too much for it. The default takes part in every round, and in
// rounds of its own where it is alone.
//
// Compared are a candidate's times to what all of the same round took, so that what slows a round
// slows nobody in particular. A stage lasts until its challengers are known closely enough for the
// cut: few rounds where there is little noise, many where there is much. Rounds that were disturbed
// are not counted, unless that does not end.
class Tournament {
 public:
  explicit Tournament(std::size_t candidates);

  // Who takes part in the next round, the default first. Nobody once that has failed.
  [[nodiscard]] std::span<const std::size_t> running() const { return running_; }

  // Times of those that run, in their order. NaN for one that failed: it is out.
  void add_round(std::span<const double> samples);

  // Whether the stage needs no more rounds.
  [[nodiscard]] bool stage_is_decided() const;
  // Whether the stage may not end yet, however late it is: a first round, and in the duel the
  // fewest on which anything is decided.
  [[nodiscard]] bool stage_owes_rounds() const;
  // Cuts the challengers in half, or closes the duel.
  void end_stage();
  // With the one in progress; 0 when the tournament is over.
  [[nodiscard]] int stages_left() const;
  // Takes the challenger out that has just met the default; the next best one meets it then.
  void disqualify_challenger();

  // The challenger that meets the default in the duel; 0 where there is none.
  [[nodiscard]] std::size_t challenger() const { return is_duel() ? running_.back() : 0; }
  // How it went; nothing on too few rounds.
  [[nodiscard]] std::optional<cache::Duel> duel() const;
  // Candidate 0, or the challenger if it was faster in the duel.
  [[nodiscard]] std::size_t winner() const;

  [[nodiscard]] int disturbed_rounds() const { return disturbed_rounds_; }
  [[nodiscard]] int samples_taken() const { return samples_taken_; }
  // Of the rounds that were counted; the duel's alone for those who met in it.
  [[nodiscard]] std::span<const double> times(std::size_t candidate) const {
    return records_[candidate].times;
  }

 private:
  struct Record {
    std::vector<double> times;
    std::vector<double> relative;  // logarithms, of the time over that of the whole round
    UsualTime usual;               // as of some rounds ago
  };

  [[nodiscard]] bool is_duel() const { return running_.size() == 2; }
  [[nodiscard]] bool is_last_stage() const { return running_.size() <= 2; }
  [[nodiscard]] std::size_t rounds() const { return records_[running_.back()].times.size(); }
  [[nodiscard]] std::vector<double> log_ratios() const;
  [[nodiscard]] bool reject(std::span<const double> samples);
  void rank_challengers();
  void start_duel();
  void promote_runner_up();

  std::vector<Record> records_;
  std::vector<std::size_t> running_;  // challengers from the best to the worst once a stage ended
  std::vector<std::size_t> beaten_;   // by other challengers; the best of them last
  int stage_ = 0;
  int rejected_in_a_row_ = 0;
  int disturbed_rounds_ = 0;
  int samples_taken_ = 0;
  bool is_over_ = false;
};

}  // namespace dorajit::autotune
