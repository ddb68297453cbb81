#include "runtime/compile/file_identity.h"

#include <sys/stat.h>

#include <cstdlib>
#include <memory>

#include "runtime/base/hash.h"

namespace dorajit::compile {

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
