// Makes operations of descriptions of own kernels.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "kernel_templates/registry.h"
#include "runtime/base/artifact_store.h"
#include "runtime/base/error.h"

namespace dorajit::own_kernels {

// The operation of a description (docs/own_kernel_format.md), which any engine of the process
// serves from now on, and which is never dropped. The same for the same description and the same
// included files, which it reads. Compiles nothing. May be called from any thread. `kept_in`: where
// the files of a description are that was kept (runtime/base/artifact_store.h).
//
// kInvalidArgument, by the field, for what a description may not be: see the format.
Result<const kernels::Operation*> make_kernel(std::string_view json,
                                              ArtifactStore* kept_in = nullptr);

// The variant whose tensors have that element type where the description leaves a choice, and else
// the one that it names. Nothing where the type is no choice; for operations of make_kernel()
// alone.
std::optional<kernels::Variant> variant_of(const kernels::Operation& kernel,
                                           kernels::ElementType type);

// The names of its scalars as C has them; null for another.
const char* const* scalar_names(const kernels::Operation& operation);

// Has every look-up of an operation of this process find the kernels whose descriptions the store
// has: those that processes with the same cache folder have used.
void serve_kept_kernels(std::shared_ptr<ArtifactStore> store);

}  // namespace dorajit::own_kernels
