// A backward pass over [rows, cols] whose sums are exact, so that plain loops in any order give
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {

// Which gradients a call asks for.
struct Wanted {
  bool d_lora = true;
  bool d_base = true;
  bool d_gain = true;
};

class BackwardTest : public CAbiTest {
 protected:
  static constexpr double kScale = 0.75;

  BackwardTest() { resize(6, 10); }

  // Fills new inputs of one type, poisons new outputs and takes as much workspace as the library
  // asks for.
  void resize(std::int64_t rows, std::int64_t cols, ElementType type = ElementType::kFloat32);

  // The call with all that is wanted, for a test to change before it runs it.
  BackwardCall call(const Wanted& wanted = {});
  Outcome run(const BackwardCall& call) { return backward(engine_.get(), call); }

  // A tensor that lives as long as the test.
  const Tensor* tensor(void* data, ElementType type, std::initializer_list<std::int64_t> shape);
  const Tensor* tensor(HostArray& array, std::initializer_list<std::int64_t> shape) {
    return tensor(array.data(), array.type(), shape);
  }

  // That what is wanted is the plain result, rounded to its own element type, and that the other
  // outputs are as resize() left them.
  void expect_results(const Wanted& wanted = {}) const;

  // That the call is refused with a message that names `argument` and has `part`, and that no byte
  // of any array has changed.
  void expect_refused(const BackwardCall& call, const std::string& argument,
                      const std::string& part = "",
                      dorajit_status status = DORAJIT_INVALID_ARGUMENT);

  // An engine whose kernels the host's compiler makes, in place of the library's own.
  void use_compiled_kernels();

  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  HostArray d_out_{ElementType::kFloat32, 0};
  HostArray inner_{ElementType::kFloat32, 0};
  HostArray gain_{ElementType::kFloat32, 0};
  HostArray d_lora_{ElementType::kFloat32, 0};
  HostArray d_base_{ElementType::kFloat32, 0};
  HostArray d_gain_{ElementType::kFloat32, 0};
  std::vector<std::byte> workspace_;
  EngineHandle engine_ = make_engine();

 private:
  [[nodiscard]] std::vector<std::vector<std::byte>> all_bytes() const;

  std::vector<std::unique_ptr<Tensor>> tensors_;
};

}  // namespace dorajit::bindings
