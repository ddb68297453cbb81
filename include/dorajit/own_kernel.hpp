// Kernels of one's own for C++17 (own_kernel.h): CUDA C++ that dorajit compiles, tunes and
// launches.
#ifndef DORAJIT_OWN_KERNEL_HPP_
#define DORAJIT_OWN_KERNEL_HPP_

#include <dorajit/own_kernel.h>

#include <cstddef>
#include <cstdint>
#include <dorajit/dorajit.hpp>
#include <initializer_list>
#include <optional>
#include <string>

namespace dorajit {
inline namespace v0 {

// An operation made of a description. Cheap to copy; any engine serves it, from any thread.
class Kernel : public Operation {
 public:
  using Tensors = std::initializer_list<std::optional<ConstTensorRef>>;
  using Scalars = std::initializer_list<double>;

  // json: docs/own_kernel_format.md. kInvalidArgument names the field that is wrong.
  explicit Kernel(const std::string& json) : Operation(make(json)) {}

  // The same of a description without its source, which stands for itself: no quote in it needs an
  // escape.
  Kernel(const std::string& json, const std::string& source) : Kernel(with_source(json, source)) {}

  // Enqueues a call on the stream. tensors, then scalars: each in the order of the description's
  // arguments; integers are given as doubles. "out" and "inout" tensors are written. workspace: of
  // workspace_bytes(), if the description has one.
  void operator()(Engine& engine, void* stream, Tensors tensors, Scalars scalars = {},
                  const Workspace& workspace = {}) const {
    engine.launch(stream, *this, tensors, scalars, workspace);
  }

  // The workspace size of such a call.
  [[nodiscard]] std::int64_t workspace_bytes(Tensors tensors, Scalars scalars = {}) const {
    const detail::TensorList list(tensors);
    std::int64_t bytes = 0;
    detail::check([&](dorajit_error** error) {
      return dorajit_kernel_workspace(get(), list.data(), list.size(), scalars.begin(),
                                      static_cast<std::int32_t>(scalars.size()), &bytes, error);
    });
    return bytes;
  }

  // Makes ready what such a call would launch. Data of tensors may be null.
  void warmup(Engine& engine, Tensors tensors, Scalars scalars = {}) const {
    engine.warmup(*this, tensors, scalars);
  }

  // What such calls launch by now; nothing while neither a call nor warmup() has made it ready.
  std::optional<Explanation> explain(const Engine& engine, Tensors tensors,
                                     Scalars scalars = {}) const {
    return engine.explain(*this, tensors, scalars);
  }

 private:
  static const dorajit_operation* make(const std::string& json) {
    const dorajit_operation* made = nullptr;
    detail::check(
        [&](dorajit_error** error) { return dorajit_kernel_create(json.c_str(), &made, error); });
    return made;
  }

  // What is no JSON object stays what it is, and is refused as such.
  static std::string with_source(const std::string& json, const std::string& source) {
    const std::size_t open = json.find('{');
    if (open == std::string::npos) return json;
    std::string quoted = "{\"source\": \"";
    for (const char c : source) {
      constexpr const char* kDigits = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(c);
      if (code < ' ') {
        quoted += std::string("\\u00") + kDigits[code / 16] + kDigits[code % 16];
      } else {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
      }
    }
    return json.substr(0, open) + quoted + "\", " + json.substr(open + 1);
  }
};

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_OWN_KERNEL_HPP_
