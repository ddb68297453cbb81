// Small JSON files of other programs, read with every size and type checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/terminal/output.h"
#include "runtime/base/error.h"

namespace dorajit::cli {

// An object of a file; errors name the file and the field, and are kInvalidArgument.
class JsonObject {
 public:
  // `path` is the file, or a folder that has `name` in it. kIoError where it cannot be read.
  static Result<JsonObject> read(const std::string& path, const std::string& name);

  [[nodiscard]] const std::string& path() const { return path_; }
  // Whether the field is there and not null.
  [[nodiscard]] bool has(const std::string& field) const;

  // Nothing where the field is missing or null.
  [[nodiscard]] Result<std::optional<JsonObject>> object(const std::string& field) const;
  [[nodiscard]] Result<std::optional<std::string>> text(const std::string& field) const;
  [[nodiscard]] Result<std::optional<bool>> flag(const std::string& field) const;
  // A single text is a list of one.
  [[nodiscard]] Result<std::optional<std::vector<std::string>>> texts(
      const std::string& field) const;
  [[nodiscard]] bool is_text(const std::string& field) const;
  // From 1 to 2^24: a size of a layer.
  [[nodiscard]] Result<std::optional<std::int64_t>> size(const std::string& field) const;
  // The same, of a field that must be there.
  [[nodiscard]] Result<std::int64_t> required_size(const std::string& field) const;

 private:
  JsonObject(std::string path, Json object) : path_(std::move(path)), object_(std::move(object)) {}
  [[nodiscard]] std::unexpected<Error> refuse(const std::string& field,
                                              const std::string& what) const;

  std::string path_;
  Json object_;
};

}  // namespace dorajit::cli
