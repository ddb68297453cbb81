#include "autotune/search/tournament.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace dorajit::autotune {
namespace {

// Required precision of the challengers' times at the first cut. Each later cut requires 1/sqrt(2)
// of the previous value, which takes as many samples again for half the challengers.
constexpr double kFirstPrecision = 0.016;
constexpr double kLastPrecision = 0.007;
constexpr std::size_t kFirstRounds = 5;
constexpr std::size_t kMaxRequiredRounds = 40;
constexpr std::size_t kMaxRounds = 400;

// Three standard errors of the final comparison are then less than half of a gain of 5%.
constexpr double kFinalPrecision = 0.008;
constexpr std::size_t kMinFinalRounds = 24;
constexpr std::size_t kMaxFinalRounds = 800;

// A challenger is eliminated between two cuts if it is slower than the fastest candidate by more
// than both: a share of the time, as a logarithm, and this many standard errors. The mean of the
// fastest of hundreds is too low by three of them.
constexpr double kFarBehind = 0.14;
constexpr double kErrorsBehind = 8;

// Before a candidate's usual times are known, no round counts as disturbed. Other load that
// persists is part of the measurement.
constexpr std::size_t kRoundsBeforeDisturbances = 5;
// Sorting the samples of hundreds of candidates takes time too, so it is done only every few
// rounds.
constexpr std::size_t kRoundsBetweenChecks = 5;
constexpr int kMaxRejectedInARow = 8;

constexpr double kMinTime = 1e-3;  // its logarithm is finite

}  // namespace

Tournament::Tournament(std::size_t candidates) : records_(candidates), running_(candidates) {
  std::iota(running_.begin(), running_.end(), std::size_t{0});
  is_over_ = candidates == 0;
}

bool Tournament::reject(std::span<const double> samples) {
  if (rounds() < kRoundsBeforeDisturbances || rejected_in_a_row_ >= kMaxRejectedInARow)
    return false;
  std::vector<double> known;
  std::vector<UsualTime> usual;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (std::isnan(samples[i])) continue;
    known.push_back(samples[i]);
    usual.push_back(records_[running_[i]].usual);
  }
  return is_disturbed(known, usual);
}

void Tournament::add_round(std::span<const double> samples) {
  samples_taken_ += static_cast<int>(samples.size());
  if (reject(samples)) {
    ++rejected_in_a_row_;
    ++disturbed_rounds_;
    return;
  }
  rejected_in_a_row_ = 0;
  std::vector<double> logarithms;
  for (const double sample : samples) {
    if (!std::isnan(sample)) logarithms.push_back(std::log(std::max(sample, kMinTime)));
  }
  const double level = median(logarithms);
  std::vector<std::size_t> still_running;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (std::isnan(samples[i])) continue;
    Record& record = records_[running_[i]];
    record.times.push_back(samples[i]);
    record.relative.push_back(std::log(std::max(samples[i], kMinTime)) - level);
    if (record.times.size() % kRoundsBetweenChecks == 0) {
      record.usual = {.median = median(record.times),
                      .deviation = median_absolute_deviation(record.times)};
    }
    still_running.push_back(running_[i]);
  }
  if (still_running.size() == running_.size()) {
    if (!is_last_stage() && rounds() % kRoundsBetweenChecks == 0) eliminate_far_behind();
    return;
  }
  const bool was_final = is_final();
  const bool has_default = !std::isnan(samples.front());
  running_ = std::move(still_running);
  if (!has_default) {
    running_.clear();
    is_over_ = true;
  } else if (was_final) {
    promote_runner_up();
  } else if (is_final()) {
    start_final();
  }
}

void Tournament::eliminate_far_behind() {
  std::vector<double> errors;
  double fastest = std::numeric_limits<double>::infinity();
  for (const std::size_t candidate : running_) {
    const Estimate estimate = trimmed_mean(records_[candidate].relative);
    errors.push_back(estimate.standard_error);
    fastest = std::min(fastest, estimate.mean);
  }
  rank_challengers();
  const double limit = fastest + std::max(kFarBehind, kErrorsBehind * median(errors));
  while (running_.size() > 2 && trimmed_mean(records_[running_.back()].relative).mean > limit) {
    beaten_.push_back(running_.back());
    running_.pop_back();
  }
  if (running_.size() < errors.size()) relate_to_running();
  if (is_final()) start_final();
}

void Tournament::relate_to_running() {
  std::vector<double> logarithms(running_.size());
  for (std::size_t round = 0; round < rounds(); ++round) {
    std::ranges::transform(running_, logarithms.begin(), [&](std::size_t candidate) {
      return std::log(std::max(records_[candidate].times[round], kMinTime));
    });
    const double level = median(logarithms);
    for (std::size_t i = 0; i < running_.size(); ++i) {
      records_[running_[i]].relative[round] = logarithms[i] - level;
    }
  }
}

std::vector<double> Tournament::log_ratios() const {
  const auto& standard = records_[running_.front()].relative;
  const auto& challenger = records_[running_.back()].relative;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(standard.size(), challenger.size()); ++i) {
    ratios.push_back(challenger[i] - standard[i]);
  }
  return ratios;
}

bool Tournament::stage_is_decided() const {
  if (is_over_) return true;
  if (is_last_stage()) {
    if (rounds() < kMinFinalRounds) return false;
    return !is_final() || rounds() >= kMaxFinalRounds ||
           trimmed_mean(log_ratios()).standard_error <= kFinalPrecision;
  }
  const std::size_t required = std::min(kFirstRounds << std::min(stage_, 8), kMaxRequiredRounds);
  if (rounds() >= kMaxRounds) return true;
  if (rounds() < required || rounds() % kRoundsBetweenChecks != 0) return false;
  std::vector<double> errors;
  for (const std::size_t candidate : running_) {
    errors.push_back(trimmed_mean(records_[candidate].relative).standard_error);
  }
  const double wanted = std::max(kLastPrecision, kFirstPrecision * std::pow(0.5, stage_ / 2.0));
  return median(errors) <= wanted;
}

bool Tournament::stage_needs_rounds() const {
  if (is_over_) return false;
  return rounds() < static_cast<std::size_t>(is_last_stage() ? cache::kMinSamples : 1);
}

void Tournament::rank_challengers() {
  std::vector<std::pair<double, std::size_t>> ranked;
  for (const std::size_t candidate : std::span(running_).subspan(1)) {
    ranked.emplace_back(trimmed_mean(records_[candidate].relative).mean, candidate);
  }
  std::ranges::sort(ranked);
  for (std::size_t i = 0; i < ranked.size(); ++i) running_[i + 1] = ranked[i].second;
}

void Tournament::end_stage() {
  if (is_last_stage()) {
    is_over_ = true;
    return;
  }
  rank_challengers();
  const std::size_t kept = 1 + (running_.size() - 1) / 2;
  for (; running_.size() > kept; running_.pop_back()) beaten_.push_back(running_.back());
  ++stage_;
  if (is_final()) start_final();
}

int Tournament::stages_left() const {
  if (is_over_) return 0;
  return std::max(1, static_cast<int>(std::bit_width(running_.size() - 1)));
}

void Tournament::start_final() {
  for (const std::size_t candidate : running_) records_[candidate] = {};
  rejected_in_a_row_ = 0;
  is_over_ = false;
}

void Tournament::disqualify_challenger() {
  if (!is_final()) return;
  running_.pop_back();
  promote_runner_up();
}

void Tournament::promote_runner_up() {
  if (beaten_.empty()) {
    is_over_ = rounds() >= static_cast<std::size_t>(cache::kMinSamples);
    return;
  }
  running_.push_back(beaten_.back());
  beaten_.pop_back();
  start_final();
}

std::optional<cache::PairedComparison> Tournament::final_comparison() const {
  if (!is_final() || rounds() < static_cast<std::size_t>(cache::kMinSamples)) return std::nullopt;
  const Estimate ratio = trimmed_mean(log_ratios());
  return cache::PairedComparison{.log_ratio = ratio.mean, .standard_error = ratio.standard_error};
}

std::size_t Tournament::winner() const {
  const auto result = final_comparison();
  return result && cache::is_faster(result->log_ratio, result->standard_error) ? challenger() : 0;
}

}  // namespace dorajit::autotune
