#include "own_kernels/included_files.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <format>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "runtime/base/dynamic_library.h"
#include "runtime/base/files.h"
#include "runtime/base/hash.h"

namespace dorajit::own_kernels {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxFiles = 4096;
constexpr std::size_t kMaxExpansions = 256;  // of a macro that is included
constexpr std::size_t kMaxNameBytes = 1024;  // of a definition that may be of a path
constexpr std::string_view kToolkit = "cuda";
constexpr const char* kHeaderOfToolkit = "cuda_fp16.h";

// The toolkit has none of these; its own C++ library defines the types in the same way.
constexpr std::string_view kIntegers =
    "#pragma once\n"
    "using int8_t = signed char; using uint8_t = unsigned char;\n"
    "using int16_t = short; using uint16_t = unsigned short;\n"
    "using int32_t = int; using uint32_t = unsigned int;\n"
    "using int64_t = long long; using uint64_t = unsigned long long;\n"
    "using intptr_t = long long; using uintptr_t = unsigned long long;\n"
    "namespace std {\n"
    "using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t;\n"
    "using ::uint32_t; using ::int64_t; using ::uint64_t; using ::intptr_t; using ::uintptr_t;\n"
    "}\n";
constexpr std::string_view kSizes =
    "#pragma once\n"
    "using size_t = decltype(sizeof(0)); using ptrdiff_t = long;\n"
    "namespace std { using ::size_t; using ::ptrdiff_t; using nullptr_t = decltype(nullptr); }\n";
constexpr std::pair<std::string_view, std::string_view> kStandardHeaders[] = {
    {"cstdint", kIntegers},
    {"stdint.h", kIntegers},
    {"cstddef", kSizes},
    {"stddef.h", kSizes},
    {"stdlib.h", kSizes}};

std::unexpected<Error> refuse_include(std::string what) {
  return fail(StatusCode::kInvalidArgument, "kernel description: \"include\" " + std::move(what));
}

fs::path folder_in(const char* variable, const char* below) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? fs::path(value) / below : fs::path();
}

// The headers of the wheels in the site-packages of an environment.
void add_wheels(const fs::path& site_packages, std::vector<fs::path>& found) {
  for (const char* package : {"cu13", "cuda_runtime"}) {
    found.push_back(site_packages / "nvidia" / package / "include");
  }
}

std::vector<fs::path> toolkit_folders() {
  std::vector<fs::path> possible = {folder_in("CUDA_PATH", "include"),
                                    folder_in("CUDA_HOME", "include")};
  add_wheels(fs::path(folder_of_this_code()).parent_path(), possible);
  std::error_code ignored;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    for (const auto& entry : fs::directory_iterator(folder_in(variable, "lib"), ignored)) {
      add_wheels(entry.path() / "site-packages", possible);
    }
  }
  possible.emplace_back("/usr/local/cuda/include");
  const auto found = std::ranges::find_if(possible, [&](const fs::path& folder) {
    return !folder.empty() && fs::exists(folder / kHeaderOfToolkit, ignored);
  });
  if (found == possible.end()) return {};
  // Where the toolkit and the wheels have CUB, Thrust and libcu++.
  return {*found, *found / "cccl", found->parent_path().parent_path() / "cuda_cccl/include"};
}

Result<std::vector<fs::path>> folders_of(const Description& description) {
  std::vector<fs::path> folders;
  for (const std::string& name : description.include) {
    if (name == kToolkit) {
      const auto toolkit = toolkit_folders();
      if (toolkit.empty()) {
        return refuse_include(
            std::format("has \"cuda\", but no toolkit was found by CUDA_PATH, CUDA_HOME "
                        "and the Python environment; give its folder that has {}",
                        kHeaderOfToolkit));
      }
      folders.insert(folders.end(), toolkit.begin(), toolkit.end());
      continue;
    }
    std::error_code ignored;
    if (!fs::is_directory(name, ignored)) {
      return refuse_include(std::format("has \"{}\", which is no folder", name.substr(0, 500)));
    }
    folders.push_back(fs::absolute(name, ignored));
  }
  return folders;
}

// What stands between the quotes or brackets of an #include.
struct Included {
  std::size_t at;
  std::string_view name;
  bool is_quoted;
};

struct Directives {
  std::vector<Included> includes;
  std::vector<std::string_view> by_macro;                              // of #include MACRO
  std::vector<std::pair<std::string_view, std::string_view>> defines;  // that may be of a path
};

std::string_view word_at(std::string_view text, std::size_t at) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  const auto begin = text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size()));
  return {begin, std::find_if_not(begin, text.end(), is_word)};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

Directives directives_of(std::string_view text) {
  Directives found;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    const std::size_t at_begin = begin;
    begin = end + 1;
    const std::size_t hash = std::min(line.find_first_not_of(" \t"), line.size());
    if (!line.substr(hash).starts_with('#')) continue;
    const std::string_view directive =
        word_at(line, std::min(line.find_first_not_of(" \t", hash + 1), line.size()));
    if (directive.empty()) continue;
    const std::string_view rest =
        trimmed(line.substr(static_cast<std::size_t>(directive.end() - line.begin())));
    if (directive == "include" && !rest.empty()) {
      const char close = rest.front() == '"' ? '"' : '>';
      const std::size_t length = rest.find(close, 1);
      if (rest.front() != '"' && rest.front() != '<') {
        found.by_macro.push_back(word_at(rest, 0));
      } else if (length != std::string_view::npos) {
        const std::string_view name = rest.substr(1, length - 1);
        found.includes.push_back(
            {at_begin + static_cast<std::size_t>(name.begin() - line.begin()), name, close == '"'});
      }
    } else if (directive == "define") {
      const std::string_view name = word_at(rest, 0);
      const std::string_view value = rest.substr(name.size());
      if (value.size() <= kMaxNameBytes && (value.starts_with(' ') || value.starts_with('\t'))) {
        found.defines.emplace_back(
            name, trimmed(value.substr(0, std::min(value.find("//"), value.find("/*")))));
      }
    }
  }
  return found;
}

// Follows includes through folders.
class Reader {
 public:
  Reader(Description& description, std::vector<fs::path> folders)
      : description_(description), folders_(std::move(folders)) {}

  // Reads what a text includes. `path`: of the file that has it; empty if it is none. Includes that
  // are found beside the file get their names from the folders: NVRTC knows no folders.
  Status follow(std::string& text, const fs::path& path) {
    std::string renamed;
    std::size_t done = 0;
    const Directives directives = directives_of(text);
    for (const auto& [name, value] : directives.defines) macros_.emplace(name, value);
    by_macro_.insert(directives.by_macro.begin(), directives.by_macro.end());
    for (const auto& [at, name, is_quoted] : directives.includes) {
      DORAJIT_ASSIGN(const auto known, find(std::string(name), is_quoted ? path : fs::path()));
      if (!known || *known == name) continue;
      renamed += std::string_view(text).substr(done, at - done);
      renamed += *known;
      done = at + name.size();
    }
    if (done > 0) text = renamed + text.substr(done);
    return {};
  }

  Status read_all() {
    DORAJIT_TRY(find_by_macros());
    // Both lists grow meanwhile.
    for (std::size_t i = 0; i < description_.included.size(); ++i) {
      std::string text = std::move(description_.included[i].text);
      const fs::path path = paths_[i];
      DORAJIT_TRY(follow(text, path));
      description_.included[i].hash = hash_hex(text);
      description_.included[i].text = std::move(text);
      if (i + 1 == description_.included.size()) DORAJIT_TRY(find_by_macros());
    }
    std::ranges::sort(description_.included, {}, &IncludedFile::name);
    return {};
  }

  // The name by which a program includes the file; nothing for a file that is nowhere.
  Result<std::optional<std::string>> find(const std::string& name, const fs::path& from) {
    std::error_code ignored;
    if (!from.empty()) {
      const fs::path beside = (from.parent_path() / name).lexically_normal();
      if (fs::is_regular_file(beside, ignored)) return add(beside);
    }
    if (std::ranges::contains(description_.headers, name, &kernels::SourceFile::name)) return name;
    for (const fs::path& folder : folders_) {
      const fs::path path = (folder / name).lexically_normal();
      if (fs::is_regular_file(path, ignored)) return add(path);
    }
    const auto* const standard = std::ranges::find(
        kStandardHeaders, name, &std::pair<std::string_view, std::string_view>::first);
    if (standard == std::end(kStandardHeaders)) return std::nullopt;
    if (names_.try_emplace(name, name).second) append(name, std::string(standard->second), {});
    return name;
  }

 private:
  // The files of each #include MACRO, by every definition of it and of the macros in it.
  Status find_by_macros() {
    for (const std::string& macro : by_macro_) {
      std::vector<std::string> texts = {macro};
      for (std::size_t i = 0; i < texts.size() && texts.size() < kMaxExpansions; ++i) {
        const std::string text = texts[i];
        if (text.size() > 2 && (text.front() == '<' || text.front() == '"')) {
          const std::string name = text.substr(1, text.size() - 2);
          DORAJIT_TRY(find(name, {}));
        }
        for (std::size_t at = 0; at < text.size();) {
          const std::string_view word = word_at(text, at);
          const auto [first, last] = macros_.equal_range(word);
          for (auto one = first; one != last; ++one) {
            std::string replaced = std::string(text).replace(at, word.size(), one->second);
            if (replaced.size() <= kMaxNameBytes) texts.push_back(std::move(replaced));
          }
          if (first != last) break;
          at += std::max<std::size_t>(word.size(), 1);
        }
      }
    }
    return {};
  }

  Result<std::optional<std::string>> add(const fs::path& path) {
    if (const auto known = names_.find(path.string()); known != names_.end()) return known->second;
    if (names_.size() >= kMaxFiles) {
      return refuse_include(std::format("leads to more than {} files", kMaxFiles));
    }
    auto text = read_regular_file(path.string(), kMaxFileBytes);
    if (!text)
      return refuse_include(std::format("leads to {}, but {}", path.string(), text.error()));
    if (text->contains('\0'))
      return refuse_include(std::format("leads to {}, which has a zero byte", path.string()));
    std::string name = path.string();
    for (const fs::path& folder : folders_) {
      const std::string within = path.lexically_relative(folder).string();
      const bool is_taken =
          std::ranges::contains(description_.included, within, &IncludedFile::name) ||
          std::ranges::contains(description_.headers, within, &kernels::SourceFile::name);
      if (within.empty() || within.starts_with("..") || is_taken) continue;
      if (within.size() < name.size()) name = within;
    }
    names_.emplace(path.string(), name);
    append(name, *std::move(text), path);
    return name;
  }

  void append(const std::string& name, std::string text, const fs::path& path) {
    description_.included.push_back({.name = name, .hash = {}, .text = std::move(text)});
    paths_.push_back(path);
  }

  Description& description_;
  const std::vector<fs::path> folders_;
  std::map<std::string, std::string> names_;  // by path
  std::vector<fs::path> paths_;               // of `included`
  std::multimap<std::string, std::string, std::less<>> macros_;
  std::set<std::string> by_macro_;
};

}  // namespace

bool has_type(const Description& description, kernels::ElementType type) {
  return std::ranges::any_of(
             description.types,
             [&](const TypeChoice& choice) { return std::ranges::contains(choice.types, type); }) ||
         std::ranges::any_of(description.arguments, [&](const Argument& argument) {
           const bool has_elements = argument.is_tensor() || argument.is_workspace();
           return has_elements && parse_type_name(argument.type) == type;
         });
}

std::vector<std::string_view> headers_of_types(const Description& description) {
  if (!description.has_native_types) return {};
  const auto has = [&](kernels::ElementType type) { return has_type(description, type); };
  std::vector<std::string_view> headers;
  if (has(kernels::ElementType::kFloat16)) headers.emplace_back("cuda_fp16.h");
  if (has(kernels::ElementType::kBfloat16)) headers.emplace_back("cuda_bf16.h");
  if (has(kernels::kFloat8E4m3) || has(kernels::kFloat8E5m2)) headers.emplace_back("cuda_fp8.h");
  return headers;
}

Status read_included_files(Description& description) {
  DORAJIT_ASSIGN(std::vector<fs::path> folders, folders_of(description));
  Reader reader(description, std::move(folders));
  for (const std::string_view header : headers_of_types(description)) {
    DORAJIT_ASSIGN(const auto found, reader.find(std::string(header), {}));
    if (found) continue;
    return fail(
        StatusCode::kInvalidArgument,
        std::format("kernel description: \"types\" or \"arguments\" has a type of {}, which "
                    "is in no folder of \"include\"; add \"cuda\"",
                    header));
  }
  DORAJIT_TRY(reader.follow(description.source.text, {}));
  for (kernels::SourceFile& header : description.headers) {
    DORAJIT_TRY(reader.follow(header.text, {}));
  }
  return reader.read_all();
}

Status find_included_files(Description& description, ArtifactStore* store) {
  for (IncludedFile& file : description.included) {
    auto kept = store != nullptr ? store->find(file.hash) : std::nullopt;
    if (!kept || hash_hex(kept->code) != file.hash) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("kernel description: \"included\" has {}, which is not kept here; "
                              "give \"include\"",
                              file.name.substr(0, 200)));
    }
    file.text = std::move(kept->code);
  }
  return {};
}

}  // namespace dorajit::own_kernels
