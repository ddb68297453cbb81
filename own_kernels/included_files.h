// The files that a source includes from folders of the user: read when the kernel is created, and
// from then on part of its description.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "own_kernels/description.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

// Whether tensors may have elements of that type.
bool has_type(const Description& description, kernels::ElementType type);

// The toolkit's headers that a description's element types need: "cuda_fp16.h".
std::vector<std::string_view> headers_of_types(const Description& description);

// Fills `included` of a description that was written by a user: with what its source and headers
// include from the folders of `include`, and what that includes, whatever the conditions around the
// lines. Includes of macros are not followed. <cstdint>, <cstddef> and <stdlib.h> are found without
// a folder. kInvalidArgument for folders and files that cannot be read.
Status read_included_files(Description& description);

// Fills the texts of `included` of a description that was kept, from where they were kept with it.
// kInvalidArgument if one is not there.
Status find_included_files(Description& description, ArtifactStore* store);

}  // namespace dorajit::own_kernels
