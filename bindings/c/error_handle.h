// The errors that cross the C ABI, and the guard that keeps exceptions from crossing it.
#pragma once

#include <exception>
#include <format>
#include <new>
#include <string>
#include <string_view>

#include "dorajit/dorajit.h"
#include "runtime/base/error.h"

struct dorajit_error {
  dorajit::StatusCode code;
  std::string message;
  std::string log;
};

namespace dorajit::bindings {

// Stores the error in `*out`, unless `out` is null, and returns its status. Never throws: if memory
// for the error is exhausted, `*out` is a shared, static out-of-memory error.
dorajit_status report(dorajit_error** out, Error error) noexcept;

dorajit_status report_out_of_memory(dorajit_error** out) noexcept;
dorajit_status report_exception(dorajit_error** out, std::string_view what) noexcept;

// Runs the body of an entry point. An error that it returns, or an exception that it throws,
// becomes the status and `*out`.
template <class Body>
dorajit_status guarded(dorajit_error** out, const Body& body) noexcept {
  if (out != nullptr) *out = nullptr;
  try {
    Status status = body();
    if (status) return DORAJIT_OK;
    return report(out, std::move(status).error());
  } catch (const std::bad_alloc&) {
    return report_out_of_memory(out);
  } catch (const std::exception& exception) {
    return report_exception(out, exception.what());
  } catch (...) {
    return report_exception(out, "an exception of unknown type");
  }
}

// Returns kInvalidArgument, naming the argument, if it is null.
inline Status require(const void* argument, std::string_view function, std::string_view name,
                      std::string_view what_to_do) {
  if (argument != nullptr) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{}: argument `{}` is null; {}", function, name, what_to_do));
}

}  // namespace dorajit::bindings
