#include "apps/cli/commands/show_command.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <format>
#include <string>
#include <vector>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "apps/cli/views/trials_table.h"
#include "autotune/engine_factory.h"
#include "kernel_templates/config_text.h"

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

Result<Json> winners_json(const std::vector<cache::Winner>& winners, cache::TuningStore& store,
                          bool with_trials) {
  Json rows = Json::array();
  for (const cache::Winner& winner : winners) {
    Json row = to_json(winner);
    row["age_s"] = age_of(winner);
    if (with_trials) {
      row["trials"] = trials_json(trials_of(winner, store), winner);
      DORAJIT_TRY(store.readable());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

CLI::App* ShowCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("show", "List the winners in the tuning database");
  command
      ->add_option("--device-fingerprint", fingerprint_,
                   "Only winners of devices whose fingerprint contains this")
      ->option_text("TEXT");
  command->add_flag("--trials", with_trials_, "Also list what was measured for each winner");
  command->footer("Example:\n  dorajit show --trials --device-fingerprint H200");
  return command;
}

Result<ExitCode> ShowCommand::run(const Invocation& invocation) {
  const auto parts = autotune::make_engine(invocation.settings);
  cache::TuningStore& store = *parts.store;
  DORAJIT_ASSIGN(const std::string only_device,
                 fingerprint_asked_for(*parts.engine, invocation.device));
  std::vector<cache::Winner> winners = store.winners();
  DORAJIT_TRY(store.readable());
  const std::int64_t trial_count = store.trial_count();
  DORAJIT_TRY(store.readable());
  std::erase_if(winners, [&](const cache::Winner& winner) {
    return !winner.device.contains(fingerprint_) ||
           (!only_device.empty() && winner.device != only_device);
  });

  if (invocation.json) {
    Json document = begin_document("show");
    document["database"] = describe(store);
    document["database"]["trials"] = trial_count;
    DORAJIT_ASSIGN(document["winners"], winners_json(winners, store, with_trials_));
    print_document(document);
    return ExitCode::kOk;
  }
  if (!winners.empty()) print(winners_text(winners));
  if (with_trials_) {
    for (const cache::Winner& winner : winners) {
      const std::vector<cache::Trial> trials = trials_of(winner, store);
      DORAJIT_TRY(store.readable());
      print(std::format("\n{} on {}\n{}", winner.problem, winner.device,
                        trials_text(trials, winner)));
    }
  }
  print(std::format("{}{} from {} in {}\n", winners.empty() ? "" : "\n",
                    count_text(std::ssize(winners), "winner"), count_text(trial_count, "trial"),
                    store.location()));
  if (winners.empty()) print("`dorajit tune --help` says how to add some\n");
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
