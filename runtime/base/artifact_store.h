// Where compiled code is kept. The runtime sees this interface only; files are the cache's matter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dorajit {

// What a compiled kernel needs of the machine, as its compiler reported it.
struct ResourceUsage {
  int registers = 0;          // per thread
  int shared_bytes = 0;       // static, per block
  int stack_bytes = 0;        // local memory frame per thread
  int spill_store_bytes = 0;  // per thread
  int spill_load_bytes = 0;   // per thread

  friend bool operator==(const ResourceUsage&, const ResourceUsage&) = default;
};

// Compiled code of one kernel: a cubin, or a CPU shared object. Its entry is `dorajit_kernel`.
struct Artifact {
  std::string code;
  ResourceUsage resources;
};

// Implementations are thread-safe and never fail their caller: what cannot be read is a miss, and
// what cannot be written is said once and forgotten.
class ArtifactStore {
 public:
  virtual ~ArtifactStore() = default;

  // The artifact of a key (32 hexadecimal digits), whole and unaltered, or nothing.
  virtual std::optional<Artifact> find(const std::string& key) = 0;

  virtual void insert(const std::string& key, const Artifact& artifact) = 0;

  // Small facts that are costly to find out (a compiler's version), keyed alike.
  virtual std::optional<std::string> find_note(const std::string& key) = 0;
  virtual void insert_note(const std::string& key, const std::string& note) = 0;
};

}  // namespace dorajit
