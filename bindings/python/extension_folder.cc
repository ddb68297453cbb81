// Where the C++ extension (dorajit/cpp_extension/) is stored.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "autotune/engine_factory.h"
#include "bindings/python/module_parts.h"
#include "bindings/python/native_error.h"
#include "cache/files/trusted_directory.h"
#include "runtime/base/settings.h"

namespace dorajit::python {
namespace {

namespace py = pybind11;

template <class T>
T value_of(Result<T> result) {
  if (result) return *std::move(result);
  const Error& error = result.error();
  raise(static_cast<dorajit_status>(error.code), error.message, error.log);
}

std::string cache_folder() { return value_of(Settings::from_environment()).cache_dir; }

std::optional<cache::TrustedDirectory> extension_folder(const std::string& name, bool makes) {
  const Settings settings = value_of(Settings::from_environment());
  const cache::Trust trust = autotune::trust_of(settings);
  cache::TrustedDirectory::Names below = {"cpp_extensions"};
  if (!name.empty()) below.push_back(name);
  if (makes) return value_of(cache::TrustedDirectory::make(settings.cache_dir, trust, below));
  return value_of(cache::TrustedDirectory::open(settings.cache_dir, trust, below));
}

std::optional<py::bytes> read(const cache::TrustedDirectory& folder, const std::string& name) {
  constexpr auto kMaxBytes = std::numeric_limits<std::int32_t>::max();
  const auto bytes = value_of(folder.read_file(name, kMaxBytes));
  return bytes ? std::optional(py::bytes(*bytes)) : std::nullopt;
}

}  // namespace

void add_extension_folder(py::module_& module) {
  py::class_<cache::TrustedDirectory>(module, "_TrustedDirectory", py::module_local())
      .def_property_readonly("descriptor", &cache::TrustedDirectory::descriptor)
      .def_property_readonly("held_path", &cache::TrustedDirectory::held_path)
      .def("read", &read);
  module.def("cache_folder", &cache_folder,
             "() -> str\n\n"
             "The cache folder; empty if nothing is kept on disk.");
  module.def("extension_folder", &extension_folder, py::arg("name"), py::arg("makes"),
             "(str, bool) -> Any\n\n"
             "The folder of this name in `cpp_extensions` of the cache folder, or `cpp_extensions` "
             "itself without a name; made if it is missing, or None. It stays open as long as the "
             "object exists: `descriptor`; `held_path`, a path to it; `read(name)`, the contents "
             "of a file, None if it is missing. Raises CacheError for a folder or a file that "
             "another user could have written.");
}

}  // namespace dorajit::python
