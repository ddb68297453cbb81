#include "runtime/base/kept_description.h"

#include "runtime/base/hash.h"

namespace dorajit {
namespace {

std::string key_of(std::string_view full_name) {
  return Hasher("description/1").add("operation", full_name).digest();
}

}  // namespace

void keep_description(ArtifactStore& store, std::string_view full_name,
                      std::string_view description) {
  const std::string key = key_of(full_name);
  if (!store.find_note(key)) store.insert_note(key, std::string(description));
}

std::optional<std::string> find_description(ArtifactStore& store, std::string_view full_name) {
  return store.find_note(key_of(full_name));
}

}  // namespace dorajit
