// Where the description of an operation is kept among the artifacts, whose limit thus holds for it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/artifact_store.h"

namespace dorajit {

// `full_name` is the operation's (kernel_templates/registry.h).
void keep_description(ArtifactStore& store, std::string_view full_name,
                      std::string_view description);
// A text that descriptions name by this key: its hash_hex().
void keep_text(ArtifactStore& store, const std::string& key, std::string_view text);
std::optional<std::string> find_description(ArtifactStore& store, std::string_view full_name);

}  // namespace dorajit
