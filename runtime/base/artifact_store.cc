#include "runtime/base/artifact_store.h"

#include <utility>

#include "runtime/base/hash.h"

namespace dorajit {
namespace {

std::string key_of(std::string_view full_name) {
  return Hasher("description/2").add("operation", full_name).digest();
}

}  // namespace

void keep_description(ArtifactStore& store, std::string_view full_name,
                      std::string_view description) {
  keep_text(store, key_of(full_name), description);
}

void keep_text(ArtifactStore& store, const std::string& key, std::string_view text) {
  // Finding it makes it recently used.
  if (!store.find(key)) store.insert(key, {.code = std::string(text), .resources = {}});
}

std::optional<std::string> find_description(ArtifactStore& store, std::string_view full_name) {
  auto kept = store.find(key_of(full_name));
  if (!kept) return std::nullopt;
  return std::move(kept->code);
}

}  // namespace dorajit
