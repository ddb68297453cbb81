// Interface for storing compiled code. The runtime uses only this; cache/ implements it with files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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
  std::string entry = kDefaultEntry;  // the symbol of its entry point
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

}  // namespace dorajit
