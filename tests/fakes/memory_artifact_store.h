// An artifact store in memory.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "runtime/base/artifact_store.h"

namespace dorajit::tests {

class MemoryArtifactStore final : public ArtifactStore {
 public:
  // Called by each find() before it looks. Set before the store is used.
  std::function<void()> before_find = [] {};

  std::optional<Artifact> find(const std::string& key) override {
    before_find();
    const std::scoped_lock lock(mutex_);
    const auto found = artifacts_.find(key);
    return found == artifacts_.end() ? std::nullopt : std::optional(found->second);
  }

  void insert(const std::string& key, const Artifact& artifact) override {
    const std::scoped_lock lock(mutex_);
    artifacts_[key] = artifact;
  }

  std::optional<std::string> find_note(const std::string& key) override {
    const std::scoped_lock lock(mutex_);
    const auto found = notes_.find(key);
    return found == notes_.end() ? std::nullopt : std::optional(found->second);
  }

  void insert_note(const std::string& key, const std::string& note) override {
    const std::scoped_lock lock(mutex_);
    notes_[key] = note;
  }

  std::map<std::string, Artifact> all() {
    const std::scoped_lock lock(mutex_);
    return artifacts_;
  }

  std::size_t size() {
    const std::scoped_lock lock(mutex_);
    return artifacts_.size();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Artifact> artifacts_;
  std::map<std::string, std::string> notes_;
};

}  // namespace dorajit::tests
