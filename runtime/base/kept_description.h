// Where the description of an operation is kept among the notes of the artifacts.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/artifact_store.h"

namespace dorajit {

// `full_name` is the operation's (kernel_templates/registry.h).
void keep_description(ArtifactStore& store, std::string_view full_name,
                      std::string_view description);
std::optional<std::string> find_description(ArtifactStore& store, std::string_view full_name);

}  // namespace dorajit
