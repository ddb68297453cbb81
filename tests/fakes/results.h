// What a result holds; a result that holds the other thing ends the test with what it says.
#pragma once

#include <optional>
#include <stdexcept>
#include <utility>

#include "runtime/base/error.h"

namespace dorajit::tests {

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message + result.error().log);
  return *std::move(result);
}

template <class T>
T value_of(std::optional<T> value) {
  if (!value) throw std::runtime_error("there is no value");
  return *std::move(value);
}

template <class T>
Error error_of(const Result<T>& result) {
  if (result) throw std::runtime_error("it did not fail");
  return result.error();
}

}  // namespace dorajit::tests
