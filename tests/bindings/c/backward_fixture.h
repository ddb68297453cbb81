// A backward pass over [rows, cols] whose sums are exact, so that their order does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/bindings/c/operation_calls.h"

namespace dorajit::bindings {

// The gradients that a call computes.
struct Wanted {
  bool d_lora = true;
  bool d_base = true;
  bool d_gain = true;
};

class BackwardTest : public CAbiTest {
 protected:
  static constexpr double kScale = 0.75;

  BackwardTest() { resize(6, 10); }

  // Fills new inputs of one type, poisons new outputs and allocates as much workspace as the
  // library requires.
  void resize(std::int64_t rows, std::int64_t cols, ElementType type = ElementType::kFloat32);

  // A valid call for the wanted gradients; a test may change it before it runs it.
  BackwardCall call(const Wanted& wanted = {});
  Outcome run(const BackwardCall& call) { return backward(engine_.get(), call); }

  // A tensor that lives as long as the test.
  const Tensor* tensor(void* data, ElementType type, const Shape& shape);
  const Tensor* tensor(HostArray& array, const Shape& shape) {
    return tensor(array.data(), array.type(), shape);
  }

  // Expects the plain result in each wanted gradient, rounded to its element type, and no change of
  // the other outputs since resize().
  void expect_results(const Wanted& wanted = {}) const;

  // Expects the call to be refused, with a message that names `argument` and contains `part`, and
  // no byte of any array to change.
  void expect_refused(const BackwardCall& call, const std::string& argument,
                      const std::string& part = "",
                      dorajit_status status = DORAJIT_INVALID_ARGUMENT);

  // Replaces the engine by one that compiles its kernels with the host's compiler.
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
