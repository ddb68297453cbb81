#include "cache/records/launch_journal.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <format>
#include <mutex>
#include <optional>
#include <system_error>

#include "cache/files/directories.h"
#include "cache/files/shared_file.h"
#include "kernel_templates/config.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"
#include "runtime/base/printable_text.h"

namespace dorajit::cache {
namespace {

constexpr std::string_view kMark = "dorajit launch journal 1";
constexpr const char* kFolder = "journal";
constexpr std::string_view kSuffix = ".entry";
constexpr std::chrono::milliseconds kNoWait{0};
constexpr off_t kMaxEntryBytes = 65536;  // an actual entry has fewer than a thousand

struct Recorded {
  std::string scope;
  kernels::Config config;
};

std::string text_of(std::string_view scope, std::string_view problem,
                    const kernels::Config& config) {
  return std::format("{}\n{}\n{}\n{}\nend\n", kMark, scope, problem, to_text(config));
}

// Nothing if the text is empty, incomplete or not an entry.
std::optional<Recorded> parse(std::string_view text) {
  const std::string_view mark = cut_line(text);
  const std::string_view scope = cut_line(text);
  cut_line(text);  // the problem
  const auto config = kernels::parse_config(cut_line(text));
  if (mark != kMark || text != "end\n" || !config) return std::nullopt;
  return Recorded{.scope = std::string(scope), .config = *config};
}

// A file of this process for an entry. Its lock shows other processes that this process is running.
class OpenEntry {
 public:
  static Result<OpenEntry> create(const std::string& cache_dir, const Trust& trust) {
    static std::atomic<int> count{0};
    DORAJIT_ASSIGN(TrustedDirectory journal, TrustedDirectory::make(cache_dir, trust, {kFolder}));
    const auto now = std::chrono::system_clock::now().time_since_epoch().count();
    std::string name = std::format("{}-{}-{}{}", ::getpid(), now, count++, kSuffix);
    DORAJIT_ASSIGN(std::optional<FileLock> lock,
                   FileLock::acquire(journal.held_path() + "/" + name, FileLock::Mode::kExclusive,
                                     kNoWait, FilePlace::kCacheFolder, journal.file_mode()));
    if (!lock) return std::unexpected(file_error("lock", journal.path() + "/" + name, EWOULDBLOCK));
    return OpenEntry(std::move(journal), std::move(name), *std::move(lock));
  }

  OpenEntry(OpenEntry&&) noexcept = default;
  OpenEntry& operator=(OpenEntry&&) = delete;
  ~OpenEntry() {
    if (lock_.descriptor() >= 0 && owner_ == ::getpid())
      ::unlinkat(journal_.descriptor(), name_.c_str(), 0);
  }

  [[nodiscard]] pid_t owner() const { return owner_; }

  // No sync: the content only has to survive the process, not the machine.
  bool write(std::string_view text) {
    const FileSizeSignalBlock no_signal;
    const int file = lock_.descriptor();
    return ::ftruncate(file, 0) == 0 &&
           ::pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  }

 private:
  OpenEntry(TrustedDirectory journal, std::string name, FileLock lock)
      : journal_(std::move(journal)), name_(std::move(name)), lock_(std::move(lock)) {}

  TrustedDirectory journal_;  // open descriptor: another folder may have taken its name
  std::string name_;
  FileLock lock_;
  pid_t owner_ = ::getpid();
};

class FileJournal final : public LaunchJournal {
 public:
  FileJournal(const std::string& cache_dir, const Trust& trust)
      : cache_dir_(cache_dir), directory_(cache_dir + "/" + kFolder), trust_(trust) {}

  std::unique_ptr<Entry> enter(std::string_view scope, std::string_view problem,
                               const kernels::Config& config) override {
    if (cache_dir_.empty()) return nullptr;
    auto file = unused_file();
    if (!file) {
      complain(file.error().message);
      return nullptr;
    }
    if (!file->write(text_of(scope, problem, config))) {
      complain(file_error("write to", directory_, errno).message);
    }
    return std::make_unique<Launch>(*this, *std::move(file));
  }

  std::vector<kernels::Config> crashed_configs(std::string_view scope) override {
    std::vector<kernels::Config> found;
    visit_dead([&](const std::optional<Recorded>& entry) {
      if (entry && entry->scope == scope) found.push_back(entry->config);
      return entry.has_value();
    });
    return found;
  }

  void forget(std::string_view scope, std::span<const kernels::Config> recorded) override {
    visit_dead([&](const std::optional<Recorded>& entry) {
      return entry && (entry->scope != scope ||
                       std::ranges::find(recorded, entry->config) == recorded.end());
    });
  }

 private:
  // Leaves its file, empty, to later launches.
  class Launch final : public Entry {
   public:
    Launch(FileJournal& journal, OpenEntry file) : journal_(journal), file_(std::move(file)) {}
    ~Launch() override {
      if (!file_.write({})) return;
      const std::scoped_lock lock(journal_.mutex_);
      journal_.unused_.push_back(std::move(file_));
    }

   private:
    FileJournal& journal_;
    OpenEntry file_;
  };

  Result<OpenEntry> unused_file() {
    const std::scoped_lock lock(mutex_);
    while (!unused_.empty()) {
      OpenEntry file = std::move(unused_.back());
      unused_.pop_back();
      if (file.owner() == ::getpid()) return file;  // in a forked child, it belongs to the parent
    }
    return OpenEntry::create(cache_dir_, trust_);
  }

  // Visits the entries of processes that have ended; removes those for which `keep` returns false.
  template <class Keep>
  void visit_dead(Keep keep) {
    if (cache_dir_.empty()) return;
    const auto cache = TrustedDirectory::open(cache_dir_, trust_);
    if (!cache || !*cache) return;  // the first user of the folder logs this
    const auto journal = (*cache)->enter(kFolder);
    if (!journal) return complain(journal.error().message);
    if (!*journal) return;
    std::error_code error;
    std::filesystem::directory_iterator file((*journal)->held_path(), error);
    for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
      const std::string name = file->path().filename();
      if (!name.ends_with(kSuffix)) continue;
      if (const Status passed = (*journal)->check_file(name); !passed) {
        complain(passed.error().message);
        continue;
      }
      const auto lock = FileLock::acquire(file->path(), FileLock::Mode::kExclusive, kNoWait);
      if (!lock || !*lock) continue;
      const auto text = (*journal)->read_file(name, kMaxEntryBytes);
      if (!text) {
        complain(text.error().message);
        continue;
      }
      if (!keep(parse(text->value_or("")))) ::unlinkat((*journal)->descriptor(), name.c_str(), 0);
    }
  }

  void complain(const std::string& message) const {
    log_once(LogLevel::kWarning, directory_,
             std::format(
                 "cannot write the launch journal, so a config that hangs will be tried again: {}",
                 message));
  }

  const std::string cache_dir_;
  const std::string directory_;  // for messages
  const Trust trust_;
  std::mutex mutex_;
  std::vector<OpenEntry> unused_;  // under mutex_
};

}  // namespace

std::unique_ptr<LaunchJournal> LaunchJournal::open(const std::string& cache_dir,
                                                   const Trust& trust) {
  return std::make_unique<FileJournal>(cache_dir, trust);
}

}  // namespace dorajit::cache
