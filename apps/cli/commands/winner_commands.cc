
#include <CLI/CLI.hpp>
#include <cstdint>
#include <format>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/report/findings.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config.h"

namespace dorajit::cli {
namespace {

std::string winners_text(const std::vector<cache::Winner>& winners) {
  Table table({{"problem"},
               {"config"},
               {"time", Align::kRight},
               {"over default", Align::kRight},
               {"age", Align::kRight},
               {"device"}});
  for (const cache::Winner& winner : winners) {
    table.add_row({winner.problem, to_text(winner.config), duration_text(winner.median_ns),
                   ratio_text(winner.default_median_ns / winner.median_ns),
                   age_text(age_of(winner)), winner.device});
  }
  return table.text();
}

std::string pins_text(const std::vector<cache::Pin>& pins) {
  Table table({{"pinned"}, {"config"}, {"device"}});
  for (const cache::Pin& pin : pins) {
    table.add_row({pin.problem, to_text(pin.config), pin.device});
  }
  return table.text();
}

struct ShowOptions {
  ProblemOptions problems;
  bool with_trials = false;
};

Result<ExitCode> run_show(const Invocation& invocation, const ShowOptions& options) {
  std::optional<std::set<std::string>> keys;
  if (names_problems(options.problems)) {
    DORAJIT_ASSIGN(keys, problem_keys(options.problems, "show"));
  }
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  DORAJIT_ASSIGN(const DeviceFilter is_of_device,
                 device_filter(invocation.settings, invocation.device));
  const auto is_other = [&](const auto& record) {
    return !is_of_device(record.device) || (keys && !keys->contains(record.problem));
  };
  std::vector<cache::Winner> winners = store.winners();
  DORAJIT_TRY(store.readable());
  const std::int64_t trial_count = store.trial_count();
  DORAJIT_TRY(store.readable());
  std::erase_if(winners, is_other);
  DORAJIT_ASSIGN(std::vector<cache::Pin> pins, store.pins().read());
  std::erase_if(pins, is_other);

  Json document = {{"database", describe(store)}, {"winners", Json::array()}};
  document["database"]["trials"] = trial_count;
  std::string text = pins.empty() ? "" : pins_text(pins) + "\n";
  if (!winners.empty()) text += winners_text(winners);
  for (const cache::Winner& winner : winners) {
    std::vector<cache::Trial> trials;
    if (options.with_trials) {
      trials = trials_of(winner, store);
      DORAJIT_TRY(store.readable());
    }
    Json& row = document["winners"].emplace_back(
        to_json(report::findings_of(winner, trials, "user database")));
    if (!options.with_trials) {
      row.erase("trials");
      row.erase("speedup_standard_error");
      continue;
    }
    text +=
        std::format("\n{} on {}\n{}", winner.problem, winner.device, trials_text(trials, winner));
  }
  document["pins"] = Json::array();
  for (const cache::Pin& pin : pins) document["pins"].push_back(to_json(pin));
  text += std::format("{}{} from {} in {}\n{}", winners.empty() ? "" : "\n",
                      count_text(std::ssize(winners), "winner"), count_text(trial_count, "trial"),
                      store.location(),
                      winners.empty() ? "`dorajit tune --shape RxC` finds one\n" : "");
  return print_result(invocation.json, "show", document, text);
}

Result<ExitCode> run_forget(const Invocation& invocation, const ProblemOptions& wanted) {
  DORAJIT_TRY(check_problem_options(wanted, "forget"));
  DORAJIT_ASSIGN(const std::set<std::string> keys, problem_keys(wanted, "forget"));
  DORAJIT_ASSIGN(const DeviceFilter is_of_device,
                 device_filter(invocation.settings, invocation.device));
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  std::set<std::pair<std::string, std::string>> known;  // device and problem
  const auto collect = [&](const auto& records) {
    for (const auto& record : records) {
      if (keys.contains(record.problem) && is_of_device(record.device)) {
        known.emplace(record.device, record.problem);
      }
    }
  };
  collect(store.trials());
  DORAJIT_TRY(store.readable());
  collect(store.winners());
  DORAJIT_TRY(store.readable());

  Json rows = Json::array();
  std::string text;
  for (const auto& [device, problem] : known) {
    DORAJIT_ASSIGN(const cache::ForgottenCounts counts, store.forget(device, problem));
    const bool is_shipped = store.find_overlay_winner(device, problem).has_value();
    rows.push_back({{"device", device},
                    {"problem", problem},
                    {"trials", counts.trials},
                    {"winners", counts.winners},
                    {"shipped", is_shipped}});
    text += std::format("{} on {}: {} and {} deleted{}\n", problem, device,
                        count_text(counts.winners, "winner"), count_text(counts.trials, "trial"),
                        is_shipped ? "; its shipped winner runs now" : "");
  }
  if (known.empty()) text = std::format("{} has nothing of that\n", store.location());
  return print_result(invocation.json, "forget",
                      {{"database", describe(store)}, {"forgotten", rows}}, text);
}

}  // namespace

void declare_show(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, options] = add_command<ShowOptions>(
      app, commands, "show", "List the winners in the tuning database, of all problems or some",
      "dorajit show --device H200\n"
      "  dorajit show --shape 4096x14336 --trials",
      run_show, /*filters_by_device=*/true);
  add_problem_options(command, options.problems);
  command.add_flag("--trials", options.with_trials,
                   "Also list the measured configs of each problem");
}

void declare_forget(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, problems] = add_command<ProblemOptions>(
      app, commands, "forget", "Delete winner and trials of a problem, so that it is tuned again",
      "dorajit forget --shape 4096x14336 --device cuda:0", run_forget, /*filters_by_device=*/true);
  add_problem_options(command, problems);
}

}  // namespace dorajit::cli
