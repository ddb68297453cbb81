#include "apps/cli/commands/devices_command.h"

#include <CLI/CLI.hpp>
#include <format>
#include <vector>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/terminal/text_format.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"

namespace dorajit::cli {

CLI::App* DevicesCommand::declare(CLI::App& app) {
  CLI::App* command = app.add_subcommand("devices", "List the devices of this machine");
  command->footer("Example:\n  dorajit devices --json");
  return command;
}

Result<ExitCode> DevicesCommand::run(const Invocation& invocation) {
  const auto parts = autotune::make_engine(invocation.settings);
  Engine& engine = *parts.engine;
  std::vector<launch::DeviceId> ids;
  if (invocation.device.empty()) {
    for (int i = 0; i < engine.cuda_device_count(); ++i) {
      ids.push_back({.kind = kernels::DeviceKind::kCuda, .ordinal = i});
    }
    ids.push_back({});
  } else {
    DORAJIT_ASSIGN(const ChosenDevice chosen, choose_device(engine, invocation.device));
    ids.push_back(chosen.id);
  }

  Table table({{"device"},
               {"name"},
               {"architecture"},
               {"processors", Align::kRight},
               {"cache", Align::kRight},
               {"memory", Align::kRight},
               {"driver"},
               {"fingerprint"}});
  Json devices = Json::array();
  for (const launch::DeviceId& id : ids) {
    DORAJIT_ASSIGN(const device::Device* device, engine.device(id));
    const device::DeviceInfo& info = device->info();
    // What "native" means stands in the fingerprint already.
    const std::string arch = id.kind == kernels::DeviceKind::kCpu ? "native" : info.target.arch;
    table.add_row({device_text(id), info.name, arch, std::to_string(info.traits.processors),
                   bytes_text(info.cache_bytes), bytes_text(info.memory_bytes), info.driver_version,
                   info.fingerprint});
    devices.push_back(to_json(id, info));
  }

  const std::string no_cuda = why_no_cuda_device();
  if (invocation.json) {
    Json document = begin_document("devices");
    document["devices"] = std::move(devices);
    document["cuda"] = {{"available", no_cuda.empty()}, {"reason", no_cuda}};
    print_document(document);
  } else {
    print(table.text());
    if (!no_cuda.empty()) print(std::format("\nno CUDA device: {}\n", no_cuda));
  }
  return ExitCode::kOk;
}

}  // namespace dorajit::cli
