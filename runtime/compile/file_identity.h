// Facts about a file, stored until the file changes.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"

namespace dorajit::compile {

// Calls `find_out` for the file at `path` and stores the result under the file's name, size and
// modification time; later calls return the stored result. `store` may be null.
Result<std::string> remembered_fact(ArtifactStore* store, const std::string& fact,
                                    const std::string& path,
                                    const std::function<Result<std::string>()>& find_out);

}  // namespace dorajit::compile
