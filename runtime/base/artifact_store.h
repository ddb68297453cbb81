// Interface for storing compiled code and the descriptions of operations. The runtime uses only
// this; cache/ implements it with files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dorajit {

// Resources that a compiled kernel uses, as reported by its compiler.
struct ResourceUsage {
  int registers = 0;          // per thread
  int shared_bytes = 0;       // static, per block
  int stack_bytes = 0;        // local memory frame per thread
  int spill_store_bytes = 0;  // per thread
  int spill_load_bytes = 0;   // per thread

  friend bool operator==(const ResourceUsage&, const ResourceUsage&) = default;
};

// Compiled code of one kernel: a cubin or a CPU shared object.
struct Artifact {
  static constexpr const char* kDefaultEntry = "dorajit_kernel";

  std::string code;
  ResourceUsage resources;
  std::string entry = kDefaultEntry;  // the symbols of its stages, with ";" between them
};

// Implementations are thread-safe and never return errors: a failed read is a miss, and a failed
// write is logged once and ignored.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;

  // The complete, unaltered artifact of a key (32 hexadecimal digits), or nothing.
  virtual std::optional<Artifact> find(const std::string& key) = 0;

  virtual void insert(const std::string& key, const Artifact& artifact) = 0;

  // Small facts that are expensive to compute (a compiler's version), under the same kind of key.
  virtual std::optional<std::string> find_note(const std::string& key) = 0;
  virtual void insert_note(const std::string& key, const std::string& note) = 0;
};

// Where the description of an operation is kept among the artifacts, whose limit thus holds for it.
// `full_name` is the operation's (kernel_templates/registry.h).
void keep_description(ArtifactStore& store, std::string_view full_name,
                      std::string_view description);
// A text that descriptions name by this key: its hash_hex().
void keep_text(ArtifactStore& store, const std::string& key, std::string_view text);
std::optional<std::string> find_description(ArtifactStore& store, std::string_view full_name);

}  // namespace dorajit
