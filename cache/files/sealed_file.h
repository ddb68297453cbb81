// The format of artifact and note files (docs/artifacts.md): a header line that describes the
// payload, then the payload.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "runtime/base/artifact_store.h"

namespace dorajit::cache {

enum class SealKind { kArtifact, kNote };

std::string seal(SealKind kind, std::string_view key, const Artifact& content);

struct UnsealFailure {
  std::string reason;
  bool newer = false;  // written in a later format: not damaged, but unreadable here
};

// The content of a file that is exactly the output of seal() for this kind and key.
std::expected<Artifact, UnsealFailure> unseal(SealKind kind, std::string_view key,
                                              std::string_view file);

}  // namespace dorajit::cache
