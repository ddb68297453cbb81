#include "cache/launch_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <format>
#include <fstream>
#include <optional>
#include <system_error>

#include "cache/file_error.h"
#include "cache/file_lock.h"
#include "kernel_templates/config_text.h"
#include "runtime/base/log.h"

namespace dorajit::cache {
namespace {

constexpr std::string_view kMark = "dorajit launch journal 1";
constexpr const char* kFolder = "journal";
constexpr std::string_view kSuffix = ".entry";
constexpr std::chrono::milliseconds kNoWait{0};

struct Entry {
  std::string scope;
  kernels::Config config;
};

std::string text_of(std::string_view scope, std::string_view problem,
                    const kernels::Config& config) {
  return std::format("{}\n{}\n{}\n{}\nend\n", kMark, scope, problem, to_text(config));
}

// Nothing for what is empty, cut off or not an entry.
std::optional<Entry> parse(const std::string& path) {
  std::ifstream file(path);
  std::string mark;
  std::string scope;
  std::string problem;
  std::string config_text;
  std::string end;
  for (std::string* line : {&mark, &scope, &problem, &config_text, &end}) {
    if (!std::getline(file, *line)) return std::nullopt;
  }
  const auto config = kernels::parse_config(config_text);
  if (mark != kMark || end != "end" || !config) return std::nullopt;
  return Entry{.scope = scope, .config = *config};
}

// A file of this process, locked for as long as it lives, which is how others know that it does.
class OpenEntry {
 public:
  static Result<OpenEntry> create(const std::string& cache_dir, const Trust& trust) {
    static std::atomic<int> count{0};
    DORAJIT_ASSIGN(const auto cache, TrustedDirectory::make(cache_dir, trust));
    DORAJIT_ASSIGN(const auto journal, cache.make_and_enter(kFolder));
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    const std::string name = std::format("{}-{}-{}{}", ::getpid(), now, count++, kSuffix);
    DORAJIT_ASSIGN(std::optional<FileLock> lock,
                   FileLock::acquire(journal.held_path() + "/" + name, FileLock::Mode::kExclusive,
                                     kNoWait, FilePlace::kCacheFolder, journal.file_mode()));
    FileDescriptor file(
        ::openat(journal.descriptor(), name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    std::string path = journal.path() + "/" + name;
    if (!lock || !file) return std::unexpected(file_error("write", path, errno));
    return OpenEntry(std::move(path), *std::move(lock), std::move(file));
  }

  OpenEntry(OpenEntry&&) noexcept = default;
  OpenEntry& operator=(OpenEntry&&) = delete;
  ~OpenEntry() {
    if (file_ && owner_ == ::getpid()) ::unlink(path_.c_str());
  }

  [[nodiscard]] pid_t owner() const { return owner_; }

  // What is written survives the process, which is all that is asked of it: no sync.
  bool write(std::string_view text) {
    return ::ftruncate(file_.get(), 0) == 0 &&
           ::pwrite(file_.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }

 private:
  OpenEntry(std::string path, FileLock lock, FileDescriptor file)
      : path_(std::move(path)), lock_(std::move(lock)), file_(std::move(file)) {}

  std::string path_;
  FileLock lock_;
  FileDescriptor file_;
  pid_t owner_ = ::getpid();
};

class FileJournal final : public LaunchJournal {
 public:
  FileJournal(const std::string& cache_dir, const Trust& trust)
      : cache_dir_(cache_dir), directory_(cache_dir + "/" + kFolder), trust_(trust) {}

  void enter(std::string_view scope, std::string_view problem,
             const kernels::Config& config) override {
    if (own_ && own_->owner() != ::getpid()) own_.reset();  // a forked child's parent has that one
    if (!own_) {
      auto created = OpenEntry::create(cache_dir_, trust_);
      if (!created) return complain(created.error().message);
      own_.emplace(*std::move(created));
    }
    if (!own_->write(text_of(scope, problem, config))) {
      complain(file_error("write to", directory_, errno).message);
    }
  }

  void leave() override {
    if (own_) own_->write({});
  }

  std::vector<kernels::Config> casualties(std::string_view scope) override {
    std::vector<kernels::Config> found;
    visit_dead([&](const std::optional<Entry>& entry) {
      if (entry && entry->scope == scope) found.push_back(entry->config);
      return entry.has_value();
    });
    return found;
  }

  void forget(std::string_view scope, std::span<const kernels::Config> recorded) override {
    visit_dead([&](const std::optional<Entry>& entry) {
      return entry && (entry->scope != scope ||
                       std::ranges::find(recorded, entry->config) == recorded.end());
    });
  }

 private:
  // Shows the entries of processes that are no more; those for which `keep` says false go.
  template <class Keep>
  void visit_dead(Keep keep) {
    const auto cache = TrustedDirectory::open(cache_dir_, trust_);
    if (!cache || !*cache) return;  // which is said where the folder is used first
    const auto journal = (*cache)->enter(kFolder);
    if (!journal) return complain(journal.error().message);
    if (!*journal) return;
    std::error_code error;
    std::filesystem::directory_iterator file((*journal)->held_path(), error);
    for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
      const std::string path = file->path().native();
      if (!path.ends_with(kSuffix) || !(*journal)->check_file(file->path().filename())) continue;
      const auto lock = FileLock::acquire(path, FileLock::Mode::kExclusive, kNoWait);
      if (!lock || !*lock) continue;
      if (!keep(parse(path))) ::unlink(path.c_str());
    }
  }

  void complain(const std::string& message) const {
    log_once(LogLevel::kWarning, directory_,
             std::format("a config that hangs will not be remembered: {}", message));
  }

  const std::string cache_dir_;
  const std::string directory_;  // for people
  const Trust trust_;
  std::optional<OpenEntry> own_;
};

class NoJournal final : public LaunchJournal {
 public:
  void enter(std::string_view, std::string_view, const kernels::Config&) override {}
  void leave() override {}
  std::vector<kernels::Config> casualties(std::string_view) override { return {}; }
  void forget(std::string_view, std::span<const kernels::Config>) override {}
};

}  // namespace

std::unique_ptr<LaunchJournal> LaunchJournal::open(const std::string& cache_dir,
                                                   const Trust& trust) {
  if (cache_dir.empty()) return std::make_unique<NoJournal>();
  return std::make_unique<FileJournal>(cache_dir, trust);
}

}  // namespace dorajit::cache
