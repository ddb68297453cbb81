#include <CLI/CLI.hpp>
#include <format>
#include <set>
#include <string>
#include <utility>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/problem_options.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {
namespace {

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

void declare_forget(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, problems] = add_command<ProblemOptions>(
      app, commands, "forget", "Delete winner and trials of a problem, so that it is tuned again",
      "dorajit forget --shape 4096x14336 --device cuda:0", run_forget, /*filters_by_device=*/true);
  add_problem_options(command, problems);
}

}  // namespace dorajit::cli
