// Facts about a file that are remembered for as long as the file stays the same.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"

namespace dorajit::compile {

// What `find_out` says of the file at `path`, asked once per content: the note is kept under the
// file's name, size and modification time. `store` may be null.
Result<std::string> remembered_fact(ArtifactStore* store, const std::string& fact,
                                    const std::string& path,
                                    const std::function<Result<std::string>()>& find_out);

}  // namespace dorajit::compile
