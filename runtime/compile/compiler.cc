#include "runtime/compile/compiler.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdlib>
#include <format>
#include <memory>
#include <system_error>

#include "kernel_templates/program.h"
#include "runtime/base/hash.h"

namespace dorajit::compile {

Target cuda_target(int major, int minor) {
  return {.kind = kernels::DeviceKind::kCuda, .arch = std::format("sm_{}{}", major, minor)};
}

std::optional<int> cuda_arch_number(std::string_view arch) {
  constexpr std::string_view kPrefix = "sm_";
  if (!arch.starts_with(kPrefix)) return std::nullopt;
  arch.remove_prefix(kPrefix.size());
  if (arch.ends_with('a') || arch.ends_with('f')) arch.remove_suffix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(arch.data(), arch.data() + arch.size(), number);
  if (error != std::errc{} || end != arch.data() + arch.size() || number <= 0) return std::nullopt;
  return number;
}

kernels::SpaceTraits traits_of(const Target& target) {
  if (target.kind == kernels::DeviceKind::kCpu) return {.kind = target.kind};
  const int architecture = cuda_arch_number(target.arch).value_or(0);
  return {.kind = target.kind,
          .processors = kernels::usual_multiprocessors(architecture),
          .architecture = architecture};
}

std::string artifact_key(const CompileRequest& request, const std::string& options,
                         const std::string& compiler_identity) {
  const auto kind = request.target.kind;
  const kernels::Program program = kernels::program_of(request.variant, request.config, kind);
  Hasher hasher("artifact/1");
  hasher.add("sources", kernels::source_identity(request.variant, kind))
      .add("options", options)
      .add("instantiation", program.source.text)
      .add("target", request.target.arch)
      .add("compiler", compiler_identity);
  if (!program.entry.empty()) hasher.add("entry", program.entry);
  return hasher.digest();
}

Result<std::string> remembered_fact(ArtifactStore* store, const std::string& fact,
                                    const std::string& path,
                                    const std::function<Result<std::string>()>& find_out) {
  struct FreeDeleter {
    void operator()(char* text) const { std::free(text); }
  };
  const std::unique_ptr<char, FreeDeleter> resolved(realpath(path.c_str(), nullptr));
  struct stat status{};
  if (store == nullptr || resolved == nullptr || stat(resolved.get(), &status) != 0) {
    return find_out();
  }
  const std::string key = Hasher("fact/1")
                              .add("fact", fact)
                              .add("path", path)
                              .add("resolved", resolved.get())
                              .add("size", static_cast<std::int64_t>(status.st_size))
                              .add("seconds", static_cast<std::int64_t>(status.st_mtim.tv_sec))
                              .add("nanoseconds", static_cast<std::int64_t>(status.st_mtim.tv_nsec))
                              .digest();
  if (auto note = store->find_note(key)) return *std::move(note);
  auto found = find_out();
  if (found) store->insert_note(key, *found);
  return found;
}

}  // namespace dorajit::compile
