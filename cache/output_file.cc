#include "cache/output_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <format>
#include <system_error>

#include "cache/atomic_file.h"
#include "cache/directories.h"

namespace dorajit::cache {

Status write_output_file(const std::string& path, std::string_view bytes) {
  if (!is_writable_directory(parent_directory(path))) {
    return fail(StatusCode::kIoError,
                std::format("cannot write {}: {}; name a file in a folder that is there and can be "
                            "written",
                            path, std::generic_category().message(errno)));
  }
  DORAJIT_ASSIGN(AtomicFile file, AtomicFile::create(path));
  DORAJIT_TRY(file.write(bytes));
  give_usual_mode(file.temporary_path());
  return file.publish_replacing();
}

void give_usual_mode(const std::string& path) {
  // There is no asking for it without setting it.
  const mode_t mask = ::umask(077);
  ::umask(mask);
  ::chmod(path.c_str(), 0666 & ~mask);
}

}  // namespace dorajit::cache
