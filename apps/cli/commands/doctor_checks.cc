#include "apps/cli/commands/doctor_checks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <format>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/options/device_choice.h"
#include "apps/cli/terminal/table.h"
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

Finding found(std::string subject, std::string what, Condition condition = Condition::kGood) {
  return {
      .subject = std::move(subject), .condition = condition, .what = std::move(what), .log = {}};
}

Finding failure(std::string subject, Condition condition, Error error) {
  Finding finding = found(std::move(subject), std::move(error.message), condition);
  finding.log = std::move(error.log);
  return finding;
}

}  // namespace

std::string_view name(Condition condition) {
  constexpr std::string_view kNames[] = {"ok", "absent", "warning", "broken"};
  static_assert(std::size(kNames) == std::to_underlying(Condition::kBroken) + 1);
  return kNames[std::to_underlying(condition)];
}

Finding check_driver() {
  const auto driver = driver::CudaDriver::get();
  if (!driver) return failure("NVIDIA driver", Condition::kAbsent, driver.error());
  Finding finding = found("NVIDIA driver", std::format("supports CUDA {}", (*driver)->version()));
  if (const std::string why = why_no_cuda_device(); !why.empty()) {
    finding.condition = Condition::kWarning;
    finding.what += "; " + why;
  }
  return finding;
}

Finding check_nvrtc(const Settings& settings, launch::KernelCache& kernels) {
  // A missing library is an error if it was named; without a GPU, none is needed.
  const Condition missing = !settings.nvrtc_path.empty()   ? Condition::kBroken
                            : why_no_cuda_device().empty() ? Condition::kWarning
                                                           : Condition::kAbsent;
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
    Finding finding = failure("host compiler", Condition::kWarning, program.error());
    finding.what += "; until then the slower CPU kernels of the library run";
    return finding;
  }
  const auto identity = kernels.host_compiler().identity();
  if (!identity) return failure("host compiler", Condition::kBroken, identity.error());
  return found("host compiler", std::format("{} at {}", *identity, *program));
}

Finding check_cache_folder(const std::string& cache_dir, cache::TuningStore& store) {
  const std::string subject = "cache folder";
  if (cache_dir.empty()) {
    return found(subject, "none: set DORAJIT_CACHE_DIR, XDG_CACHE_HOME or HOME",
                 Condition::kWarning);
  }
  if (store.persistent() && cache::is_writable_directory(cache_dir)) {
    return found(subject, cache_dir + ", writable");
  }
  // Where the folder cannot be made, that is why the store keeps nothing.
  const Status made = cache::make_private_directories(cache_dir);
  std::string reason = made ? store.reason_not_persistent() : made.error().message;
  if (reason.empty()) reason = "make it writable, or set DORAJIT_CACHE_DIR to a folder that is";
  return found(subject, std::format("{}: nothing new is kept: {}", cache_dir, reason),
               Condition::kWarning);
}

Finding check_database(cache::TuningStore& store) {
  const std::string subject = "tuning database";
  const std::int64_t trials = store.trial_count();
  const auto winners = static_cast<std::int64_t>(store.winners().size());
  Finding finding =
      found(subject, std::format("{}: {}, {}", store.location(), count_text(winners, "winner"),
                                 count_text(trials, "trial")));
  if (!store.persistent()) {
    finding.condition = Condition::kWarning;
    finding.what += "; not kept: " + store.reason_not_persistent();
  } else if (const Status read = store.readable(); !read) {  // other processes hold it
    return failure(subject, Condition::kWarning, read.error());
  } else if (const auto file = cache::read_trial_file(store.location()); !file) {
    return failure(subject, Condition::kWarning, file.error());
  } else if (!file->is_complete()) {
    finding.condition = Condition::kWarning;
    finding.what += file->damage.empty()
                        ? std::format("; {} ignored", count_text(file->bad_count, "bad row"))
                        : "; damaged: " + file->damage;
  }
  return finding;
}

Finding check_shipped_databases(const std::string& folder, const cache::Trust& trust) {
  constexpr const char* kSubject = "shipped results";
  if (folder.empty()) return found(kSubject, "none", Condition::kAbsent);
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
  if (!damage.empty()) finding.condition = Condition::kWarning;
  return finding;
}

Finding check_lock_file(const std::string& path) {
  Finding finding = found("lock file", path);
  if (const auto entries = cache::read_pin_file(path)) {
    finding.what += std::format(": {}", count_text(std::ssize(*entries), "problem"));
  } else {
    finding.condition = Condition::kBroken;
    finding.what = entries.error().message + "; or unset DORAJIT_LOCKED";
  }
  return finding;
}

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
    finding.condition = Condition::kWarning;
    finding.what += "  (no such variable; docs/environment.md lists them)";
  }
  std::ranges::sort(findings, {}, &Finding::subject);
  return findings;
}

Finding check_device(Engine& engine, const launch::DeviceId& id) {
  const std::string subject = device_text(id);
  const auto device = engine.device(id);
  if (!device) return failure(subject, Condition::kBroken, device.error());
  const device::DeviceInfo& info = (*device)->info();
  if (auto tested = run_self_test(engine, id); !tested) {
    Error error = std::move(tested).error();
    error.message = std::format("{}: {}", info.name, error.message);
    return failure(subject, Condition::kBroken, std::move(error));
  }
  return found(subject, std::format("{}, {}, {} cache, {} memory, driver {}; fingerprint {}",
                                    info.name, count_text(info.traits.processors, "processor"),
                                    bytes_text(info.cache_bytes), bytes_text(info.memory_bytes),
                                    info.driver_version, info.fingerprint));
}

}  // namespace dorajit::cli
