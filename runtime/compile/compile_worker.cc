#include "runtime/compile/compile_worker.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/files.h"
#include "runtime/compile/subprocess.h"

namespace dorajit::compile {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kJobFile = "job";
constexpr const char* kOutputFile = "output";

// On top of what the process has when NVRTC is loaded.
constexpr std::uint64_t kMaxBytes = std::uint64_t{4} << 30;
// NVRTC lets its stack grow without a limit if it may.
constexpr std::uint64_t kMaxStackBytes = std::uint64_t{1} << 30;

void set_limit(__rlimit_resource resource, std::uint64_t bytes) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, bytes);
  limit.rlim_cur = std::min(limit.rlim_cur, limit.rlim_max);
  ::setrlimit(resource, &limit);
}

// Texts without zero bytes, which descriptions of kernels do not have either.
class Fields {
 public:
  Fields() = default;
  explicit Fields(std::string bytes) : bytes_(std::move(bytes)) {}

  void add(std::string_view text) { bytes_.append(text).push_back('\0'); }
  // Empty at the end.
  std::string take() {
    const std::size_t end = std::min(bytes_.find('\0', at_), bytes_.size());
    const std::size_t begin = std::exchange(at_, std::min(end + 1, bytes_.size()));
    return bytes_.substr(begin, end - begin);
  }
  [[nodiscard]] bool is_at_end() const { return at_ == bytes_.size(); }
  [[nodiscard]] std::string rest() const { return bytes_.substr(at_); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

std::string to_bytes(const std::string& nvrtc, const NvrtcJob& job) {
  Fields fields;
  fields.add(nvrtc);
  fields.add(job.makes_cubin ? "cubin" : "ptx");
  fields.add(job.program.entry);
  fields.add(job.program.source.name);
  fields.add(job.program.source.text);
  fields.add(std::to_string(job.options.size()));
  for (const std::string& option : job.options) fields.add(option);
  for (const kernels::SourceFile& header : job.program.headers) {
    fields.add(header.name);
    fields.add(header.text);
  }
  return fields.bytes();
}

// Without the path of NVRTC, which was taken before.
NvrtcJob take_job(Fields& fields) {
  NvrtcJob job;
  job.makes_cubin = fields.take() == "cubin";
  job.program.entry = fields.take();
  job.program.source.name = fields.take();
  job.program.source.text = fields.take();
  job.program.options.emplace();  // it is a user's
  for (long left = std::strtol(fields.take().c_str(), nullptr, 10); left > 0; --left) {
    job.options.push_back(fields.take());
  }
  while (!fields.is_at_end()) {
    std::string name = fields.take();
    job.program.headers.push_back({std::move(name), fields.take()});
  }
  return job;
}

// From now on this thread finds no file by a name; open descriptors still work. NVRTC has no option
// for it: it reads what a source includes by an absolute path, or from the working folder.
bool hide_files() {
  // A descriptor and an empty path: that is fstat().
  constexpr std::size_t kFlagsOfNewfstatat = offsetof(seccomp_data, args[3]);
  constexpr auto kLoad = static_cast<std::uint16_t>(BPF_LD | BPF_W | BPF_ABS);
  constexpr auto kIfEqual = static_cast<std::uint16_t>(BPF_JMP | BPF_JEQ | BPF_K);
  constexpr auto kIfSet = static_cast<std::uint16_t>(BPF_JMP | BPF_JSET | BPF_K);
  constexpr auto kReturn = static_cast<std::uint16_t>(BPF_RET | BPF_K);
  constexpr int kHidden[] = {
#ifdef SYS_open  // newer architectures have only those with the descriptor of a folder
      SYS_open,   SYS_creat,   SYS_stat,      SYS_lstat,      SYS_access,     SYS_readlink,
#endif
      SYS_openat, SYS_openat2, SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_statx};
  std::vector<sock_filter> filter = {
      BPF_STMT(kLoad, offsetof(seccomp_data, nr)), BPF_JUMP(kIfEqual, SYS_newfstatat, 0, 3),
      BPF_STMT(kLoad, kFlagsOfNewfstatat),
      BPF_JUMP(kIfSet, AT_EMPTY_PATH, 0, static_cast<std::uint8_t>(std::size(kHidden) + 2)),
      BPF_STMT(kReturn, SECCOMP_RET_ALLOW)};
  for (std::size_t i = 0; i < std::size(kHidden); ++i) {
    const auto to_hidden = static_cast<std::uint8_t>(std::size(kHidden) - i);
    filter.push_back(BPF_JUMP(kIfEqual, static_cast<std::uint32_t>(kHidden[i]), to_hidden, 0));
  }
  filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ALLOW));
  filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ERRNO | ENOENT));
  const sock_fprog program{.len = static_cast<std::uint16_t>(filter.size()),
                           .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

void limit_memory() {
  std::uint64_t pages = 0;
  std::ifstream status("/proc/self/statm");
  for (int i = 0; i < 6; ++i) status >> pages;  // the sixth: data and stack
  set_limit(RLIMIT_DATA, pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) + kMaxBytes);
  set_limit(RLIMIT_STACK, kMaxStackBytes);
  set_limit(RLIMIT_CORE, 0);
  std::ofstream("/proc/self/oom_score_adj") << 1000;
}

Result<NvrtcOutput> compile_job_of_folder() {
  std::ifstream file(kJobFile, std::ios::binary);
  Fields fields(std::string(std::istreambuf_iterator<char>(file), {}));
  DORAJIT_ASSIGN(const NvrtcLibrary nvrtc, NvrtcLibrary::open(fields.take()));
  const NvrtcJob job = take_job(fields);
  limit_memory();
  if (hide_files()) return run_nvrtc(nvrtc, job);
  return fail(StatusCode::kUnsupported,
              std::format("this system cannot hide files from NVRTC (seccomp: {}); DORAJIT_WORKER="
                          "none compiles without that",
                          std::strerror(errno)));
}

}  // namespace

Result<NvrtcOutput> run_in_worker(const std::string& program, const std::string& nvrtc,
                                  const NvrtcJob& job, std::string_view what,
                                  Clock::time_point deadline) {
  if (program.empty()) {
    return fail(StatusCode::kNoCompiler,
                "own kernels are compiled by dorajitd, which is not installed with this library; "
                "install it, or set DORAJIT_WORKER to its path");
  }
  std::error_code ignored;
  const std::string library = std::filesystem::absolute(nvrtc, ignored).string();
  DORAJIT_ASSIGN(const PrivateFolder folder, PrivateFolder::make());
  DORAJIT_TRY(folder.write(kJobFile, to_bytes(library, job)));
  const Clock::time_point start = Clock::now();
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::min(deadline, start + kCompileTimeLimit) - start);
  const auto run = run_process({program, "--compile"}, limit, folder.descriptor());
  if (!run) {
    return fail(StatusCode::kCompileError, std::format("{}: {}", what, run.error().message),
                run.error().log);
  }
  Fields fields(folder.read(kOutputFile));
  if (run->exit_code != 0 || fields.bytes().empty()) {
    return fail(
        StatusCode::kInternal,
        std::format("NVRTC crashed or ran out of memory while it compiled {} ({} ended with "
                    "{}); simplify the kernel, or set DORAJIT_NVRTC to another libnvrtc",
                    what, program, run->exit_code),
        run->output);
  }
  NvrtcOutput made;
  made.failure = fields.take();
  made.log = fields.take();
  made.entry = fields.take();
  made.code = fields.rest();
  return made;
}

Status run_compile_worker() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const FileDescriptor output(
      ::open(kOutputFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!output) {
    return fail(StatusCode::kIoError, std::format("cannot write output: {}", std::strerror(errno)));
  }
  const auto made = compile_job_of_folder();
  Fields result;
  result.add(made ? made->failure : made.error().message);
  if (made) {
    result.add(made->log);
    result.add(made->entry);
  }
  const bool is_written =
      write_all(output, result.bytes()) && (!made || write_all(output, made->code));
  // At once: destructors of NVRTC have nothing left to do, and tools that report at exit need
  // files.
  ::_exit(is_written ? 0 : 1);
}

}  // namespace dorajit::compile
