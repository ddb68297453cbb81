#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <format>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/commands/commands.h"
#include "apps/cli/options/device_choice.h"
#include "apps/cli/options/trial_inputs.h"
#include "apps/cli/terminal/output.h"
#include "apps/cli/terminal/progress_bar.h"
#include "apps/cli/terminal/table.h"
#include "apps/cli/views/descriptions.h"
#include "autotune/engine_factory.h"
#include "autotune/search/scratch_operands.h"
#include "cache/database/overlay_databases.h"
#include "cache/database/trial_files.h"
#include "cache/files/directories.h"
#include "cache/records/pins.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "runtime/compile/nvrtc_library.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::cli {
namespace {

using autotune::ScratchOperands;
using autotune::ScratchShape;
using kernels::ElementType;

// Conditions of what is checked.
constexpr std::string_view kGood = "ok";
constexpr std::string_view kAbsent = "absent";    // not here, which may be intended
constexpr std::string_view kWarning = "warning";  // works, but not as well as it could
constexpr std::string_view kBroken = "broken";

struct Finding {
  std::string subject;
  std::string_view condition = kGood;
  std::string what;  // what was found
  std::string log;   // of a compiler, if one failed
};

const kernels::Variant kVariant{.operation = &kernels::operation("compose"),
                                .types = {ElementType::kBfloat16, ElementType::kBfloat16,
                                          ElementType::kFloat32, ElementType::kBfloat16}};

Status check_shape(Engine& engine, device::Device& device, const launch::DeviceId& id,
                   const ScratchShape& shape) {
  DORAJIT_ASSIGN(ScratchOperands scratch, ScratchOperands::make(device, kVariant, shape));
  DORAJIT_TRY(scratch.poison(0));
  const kernels::KernelArguments arguments = scratch.arguments(0);
  const auto& specs = kVariant.operation->operands;
  std::vector<launch::TensorView> operands;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    operands.push_back({.data = arguments.operands[i].data,
                        .type = kVariant.types[i],
                        .device = id,
                        .rows = kernels::num_rows(specs[i].shape, shape.sizes),
                        .cols = kernels::row_length(specs[i].shape, shape.sizes),
                        .row_stride = arguments.operands[i].row_stride});
  }
  const std::array<double, 1> scalars = {arguments.scalars[0]};
  DORAJIT_TRY(
      engine.run({.operation = kVariant.operation, .operands = operands, .scalars = scalars},
                 device.own_stream()));
  DORAJIT_TRY(device.synchronize(device.own_stream()));
  DORAJIT_ASSIGN(const std::vector<std::byte> outputs, scratch.read_outputs(0));
  DORAJIT_ASSIGN(const std::vector<std::byte> expected, scratch.reference_outputs(0));
  if (outputs == expected) return {};
  return fail(StatusCode::kInternal,
              std::format("compose of {} does not give the reference's bits; please report this",
                          kernels::to_text(*kVariant.operation, shape.sizes)));
}

// Runs the engine as a caller would, on aligned and on ragged data, and compares the outputs with
// the host reference. kInternal when a bit is wrong.
Status run_self_test(Engine& engine, const launch::DeviceId& id) {
  DORAJIT_ASSIGN(device::Device * device, engine.device(id));
  const int widest = kernels::widest_vector(kVariant, id.kind);
  DORAJIT_TRY(check_shape(engine, *device, id,
                          {.sizes = {37, 2048, 2048}, .vector_width = widest, .seed = 1}));
  return check_shape(engine, *device, id, {.sizes = {5, 1027, 1027}, .vector_width = 1, .seed = 2});
}

constexpr std::string_view kPrefix = "DORAJIT_";
constexpr std::string_view kKnownVariables[] = {
    "DORAJIT_AUTOTUNE", "DORAJIT_CACHE_DIR",       "DORAJIT_CACHE_MAX_BYTES",
    "DORAJIT_CXX",      "DORAJIT_DAEMON_DIR",      "DORAJIT_DATABASES",
    "DORAJIT_DROPOUT",  "DORAJIT_LOCKED",          "DORAJIT_LOCKED_MISS",
    "DORAJIT_LOG",      "DORAJIT_LOW_RANK_DTYPE",  "DORAJIT_MLP",
    "DORAJIT_NVRTC",    "DORAJIT_PATCH_PEFT",      "DORAJIT_PRINT_AUTOTUNING",
    "DORAJIT_RECORD",   "DORAJIT_SCRATCH_BYTES",   "DORAJIT_TRUST_GROUP",
    "DORAJIT_TUNE",     "DORAJIT_TUNE_CANDIDATES", "DORAJIT_TUNE_SECONDS",
    "DORAJIT_WORKER"};
// Names of others that are read: cache and temporary folders, CUDA's folder, visible GPUs.
constexpr std::string_view kForeign[] = {"CONDA_PREFIX",
                                         "CUDA_HOME",
                                         "CUDA_PATH",
                                         "CUDA_VISIBLE_DEVICES",
                                         "DORA_AUTOTUNE_COMPREHENSIVE",
                                         "TMPDIR",
                                         "VIRTUAL_ENV",
                                         "XDG_CACHE_HOME",
                                         "XDG_RUNTIME_DIR"};

Finding found(std::string subject, std::string what, std::string_view condition = kGood) {
  return {
      .subject = std::move(subject), .condition = condition, .what = std::move(what), .log = {}};
}

Finding failure(std::string subject, std::string_view condition, Error error) {
  Finding finding = found(std::move(subject), std::move(error.message), condition);
  finding.log = std::move(error.log);
  return finding;
}

Finding check_driver() {
  const auto driver = driver::CudaDriver::get();
  if (!driver) return failure("NVIDIA driver", kAbsent, driver.error());
  Finding finding = found("NVIDIA driver", std::format("supports CUDA {}", (*driver)->version()));
  if (const std::string why = why_no_cuda_device(); !why.empty()) {
    finding.condition = kWarning;
    finding.what += "; " + why;
  }
  return finding;
}

Finding check_nvrtc(const Settings& settings, launch::KernelCache& kernels) {
  // A missing library is an error if it was named; without a GPU, none is needed.
  const std::string_view missing = !settings.nvrtc_path.empty()   ? kBroken
                                   : why_no_cuda_device().empty() ? kWarning
                                                                  : kAbsent;
  const auto library = compile::NvrtcLibrary::open(settings.nvrtc_path);
  if (!library) return failure("NVRTC", missing, library.error());
  const auto identity = kernels.nvrtc().identity();
  if (!identity) return failure("NVRTC", missing, identity.error());
  const auto archs = kernels.nvrtc().supported_archs();
  if (!archs) return failure("NVRTC", missing, archs.error());
  return found("NVRTC", std::format("{} at {}; compiles for {}", *identity, library->path(),
                                    joined(*archs, " ")));
}

Finding check_host_compiler(launch::KernelCache& kernels) {
  const auto program = kernels.host_compiler().program();
  if (!program) {
    Finding finding = failure("host compiler", kWarning, program.error());
    finding.what += "; until then the slower CPU kernels of the library run";
    return finding;
  }
  const auto identity = kernels.host_compiler().identity();
  if (!identity) return failure("host compiler", kBroken, identity.error());
  return found("host compiler", std::format("{} at {}", *identity, *program));
}

Finding check_cache_folder(const std::string& cache_dir, cache::TuningStore& store) {
  const std::string subject = "cache folder";
  if (cache_dir.empty()) {
    return found(subject, "none: set DORAJIT_CACHE_DIR, XDG_CACHE_HOME or HOME", kWarning);
  }
  if (store.persistent() && cache::is_writable_directory(cache_dir)) {
    return found(subject, cache_dir + ", writable");
  }
  // Where the folder cannot be made, that is why the store keeps nothing.
  const Status made = cache::make_private_directories(cache_dir);
  std::string reason = made ? store.reason_not_persistent() : made.error().message;
  if (reason.empty()) reason = "make it writable, or set DORAJIT_CACHE_DIR to a folder that is";
  return found(subject, std::format("{}: nothing new is kept: {}", cache_dir, reason), kWarning);
}

Finding check_database(cache::TuningStore& store) {
  const std::string subject = "tuning database";
  const std::int64_t trials = store.trial_count();
  const auto winners = static_cast<std::int64_t>(store.winners().size());
  Finding finding =
      found(subject, std::format("{}: {}, {}", store.location(), count_text(winners, "winner"),
                                 count_text(trials, "trial")));
  if (!store.persistent()) {
    finding.condition = kWarning;
    finding.what += "; not kept: " + store.reason_not_persistent();
  } else if (const Status read = store.readable(); !read) {  // other processes hold it
    return failure(subject, kWarning, read.error());
  } else if (const auto file = cache::read_trial_file(store.location()); !file) {
    return failure(subject, kWarning, file.error());
  } else if (!file->is_complete()) {
    finding.condition = kWarning;
    finding.what += file->damage.empty()
                        ? std::format("; {} ignored", count_text(file->bad_count, "bad row"))
                        : "; damaged: " + file->damage;
  }
  return finding;
}

// The databases that are read besides the user's.
Finding check_shipped_databases(const std::string& folder, const cache::Trust& trust) {
  constexpr const char* kSubject = "shipped results";
  if (folder.empty()) return found(kSubject, "none", kAbsent);
  std::string names;
  std::string damage;
  for (const std::string& path : cache::databases_in(folder, trust)) {
    const std::string name = std::filesystem::path(path).filename().string();
    const auto winners = cache::count_overlay_winners(path, trust);
    if (!winners) damage += std::format("; {}: {}", name, winners.error().message);
    names += std::format("{}{}: {}", names.empty() ? " " : ", ", name,
                         count_text(winners.value_or(0), "winner"));
  }
  Finding finding = found(kSubject, folder + (names.empty() ? " holds no *.db" : names) + damage);
  if (!damage.empty()) finding.condition = kWarning;
  return finding;
}

// The lock file of applications; `path` is not empty.
Finding check_lock_file(const std::string& path) {
  Finding finding = found("lock file", path);
  if (const auto entries = cache::read_pin_file(path)) {
    finding.what += std::format(": {}", count_text(std::ssize(*entries), "problem"));
  } else {
    finding.condition = kBroken;
    finding.what = entries.error().message + "; or unset DORAJIT_LOCKED";
  }
  return finding;
}

// The variables that dorajit reads, or that look as if it did, by name.
std::vector<Finding> check_environment() {
  std::vector<Finding> findings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const bool is_ours = name.starts_with(kPrefix);
    if (!is_ours && !std::ranges::contains(kForeign, name)) continue;
    Finding& finding = findings.emplace_back(
        found(std::string(name), std::string(text.substr(std::min(name.size() + 1, text.size())))));
    if (!is_ours || std::ranges::contains(kKnownVariables, name)) continue;
    finding.condition = kWarning;
    finding.what += "  (no such variable; docs/environment.md lists them)";
  }
  std::ranges::sort(findings, {}, &Finding::subject);
  return findings;
}

// Opens the device and runs the self test on it.
Finding check_device(Engine& engine, const launch::DeviceId& id) {
  const std::string subject = device_text(id);
  const auto device = engine.device(id);
  if (!device) return failure(subject, kBroken, device.error());
  const device::DeviceInfo& info = (*device)->info();
  if (auto tested = run_self_test(engine, id); !tested) {
    Error error = std::move(tested).error();
    error.message = std::format("{}: {}", info.name, error.message);
    return failure(subject, kBroken, std::move(error));
  }
  return found(subject, std::format("{}, {}, {} cache, {} memory, driver {}; fingerprint {}",
                                    info.name, count_text(info.traits.processors, "processor"),
                                    bytes_text(info.cache_bytes), bytes_text(info.memory_bytes),
                                    info.driver_version, info.fingerprint));
}

Json findings_json(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"subject", finding.subject},
                    {"condition", finding.condition},
                    {"what", finding.what},
                    {"log", finding.log}});
  }
  return rows;
}

std::string findings_text(std::string_view heading, const std::vector<Finding>& findings) {
  if (findings.empty()) return {};
  Table table({{std::string(heading)}, {""}, {""}});
  for (const Finding& finding : findings) {
    table.add_row({"  " + finding.subject, std::string(finding.condition), finding.what});
  }
  std::string text = table.text();
  for (const Finding& finding : findings) {
    if (finding.condition != kAbsent && !finding.log.empty())
      text += std::format("\n{}:\n{}\n", finding.subject, finding.log);
  }
  return text;
}

std::string verdict_text(const TrialInput& input) {
  const auto& [path, file] = input;
  const bool is_database = file.kind == cache::TrialFileKind::kDatabase;
  std::string text =
      std::format("{}: {}, {}{}\n", path, count_text(std::ssize(file.trials), "good trial"),
                  is_database ? count_text(file.winners, "good winner") + ", " : "",
                  count_text(file.bad_count, is_database ? "bad row" : "bad line"));
  for (const cache::BadLine& line : file.bad) {
    text += std::format("{}:{}: {}\n", path, line.number, line.reason);
  }
  if (file.is_complete()) return text + "all of it is good\n";
  if (file.damage.empty()) return text + "`dorajit export` leaves out what is bad\n";
  return text + std::format("{}: damaged: {}; {}\n", path, file.damage,
                            is_database
                                ? "the next dorajit that uses its cache folder sets it aside "
                                  "and keeps the rows that it can read"
                                : "export it again, or keep the rest of it with `dorajit "
                                  "export --partial --from FILE --out OTHER`");
}

// Checks a file of trials or a database and changes nothing.
Result<ExitCode> check_file(const std::string& path, bool json) {
  TrialInput input{.path = path, .file = {}};
  {
    ProgressBar progress(!json);
    DORAJIT_ASSIGN(input.file, cache::read_trial_file(path, progress.follow("reading " + path)));
  }
  const bool is_good = input.file.is_complete();
  Json document = {{"good", is_good}};
  document.update(to_json(input));
  document["winners"] = input.file.winners;
  print_result(json, "doctor", document, verdict_text(input));
  return is_good ? ExitCode::kOk : ExitCode::kFailed;
}

// The findings, with a description of each device.
Json devices_json(const std::vector<Finding>& findings, const std::vector<launch::DeviceId>& ids,
                  Engine& engine) {
  Json rows = findings_json(findings);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (const auto device = engine.device(ids[i])) {
      rows[i].update(to_json(ids[i], (*device)->info()));
    }
  }
  return rows;
}

Result<std::vector<launch::DeviceId>> wanted_devices(Engine& engine, const std::string& text) {
  DORAJIT_ASSIGN(const std::optional<launch::DeviceId> asked, parse_device(text));
  if (asked) return std::vector{*asked};
  std::vector<launch::DeviceId> ids;
  for (int i = 0; i < engine.cuda_device_count(); ++i) {
    ids.push_back({.kind = kernels::DeviceKind::kCuda, .ordinal = i});
  }
  ids.push_back({});
  return ids;
}

// Without a file, the machine is checked.
Result<ExitCode> run_doctor(const Invocation& invocation, const std::string& path) {
  if (!path.empty()) return check_file(path, invocation.json);
  Settings settings = invocation.settings;
  settings.tune_policy = TunePolicy::kOff;
  const auto parts = autotune::make_engine(settings);
  Engine& engine = *parts.engine;
  DORAJIT_ASSIGN(const std::vector<launch::DeviceId> ids,
                 wanted_devices(engine, invocation.device));

  std::vector<Finding> pieces = {
      check_driver(),
      check_nvrtc(settings, engine.kernels()),
      check_host_compiler(engine.kernels()),
      check_cache_folder(settings.cache_dir, *parts.store),
      check_database(*parts.store),
      check_shipped_databases(settings.shipped_databases, autotune::overlay_trust_of(settings))};
  if (!settings.locked_path.empty()) pieces.push_back(check_lock_file(settings.locked_path));
  std::vector<Finding> devices;
  for (const launch::DeviceId& id : ids) devices.push_back(check_device(engine, id));
  const std::vector<Finding> environment = check_environment();
  const bool is_usable = std::ranges::any_of(
      devices, [](const Finding& finding) { return finding.condition == kGood; });

  print_result(
      invocation.json, "doctor",
      {{"usable", is_usable},
       {"pieces", findings_json(pieces)},
       {"devices", devices_json(devices, ids, engine)},
       {"environment", findings_json(environment)}},
      findings_text("pieces", pieces) + findings_text("devices", devices) +
          findings_text("environment", environment) +
          (is_usable
               ? "dorajit works on this machine\n"
               : "dorajit does not work on this machine: the self-test failed on every device\n"));
  return is_usable ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

void declare_doctor(CLI::App& app, std::vector<Command>& commands) {
  const auto [command, path] = add_command<std::string>(
      app, commands, "doctor", "Check devices, compilers and tuning database, or a file",
      "dorajit doctor\n  dorajit doctor h200.jsonl", run_doctor);
  command.add_option("FILE", path,
                     "Check only this file of `dorajit export`, or database, and change nothing");
}

}  // namespace dorajit::cli
