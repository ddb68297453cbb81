#include "cache/files/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <format>
#include <system_error>

#include "cache/files/atomic_file.h"
#include "cache/files/directories.h"
#include "cache/files/file_error.h"
#include "runtime/base/file_descriptor.h"

namespace dorajit::cache {

namespace {

// A path that does not exist yet is returned unchanged.
std::string behind_links(const std::string& path) {
  std::error_code error;
  const auto target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

Status write_into(const std::string& path, std::string_view bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file && write_all(file, bytes) && file.reset() == 0) return {};
  return std::unexpected(file_error("write", path, errno, FilePlace::kNamed));
}

}  // namespace

Status write_output_file(const std::string& named, std::string_view bytes) {
  struct stat info{};
  if (::stat(named.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return write_into(named, bytes);
  const std::string path = behind_links(named);
  if (!is_writable_directory(parent_directory(path))) {
    return fail(StatusCode::kIoError,
                std::format("cannot write {}: {}; name a file in a folder that exists and can be "
                            "written",
                            path, std::generic_category().message(errno)));
  }
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(path, FilePlace::kNamed));
  DORAJIT_TRY(file.write(bytes));
  give_usual_mode(file.temporary_path());
  return file.publish_replacing();
}

void give_usual_mode(const std::string& path) {
  // The umask cannot be read without setting it.
  const mode_t mask = ::umask(077);
  ::umask(mask);
  ::chmod(path.c_str(), 0666 & ~mask);
}

}  // namespace dorajit::cache
