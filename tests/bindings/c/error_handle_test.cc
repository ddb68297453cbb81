// No exception crosses the C ABI.
#include "bindings/c/error_handle.h"

#include <stdexcept>

#include "tests/bindings/c/c_abi_fixture.h"

namespace dorajit::bindings {
namespace {

TEST(ErrorHandle, CarriesStatusMessageAndLog) {
  dorajit_error* error = nullptr;
  const dorajit_status status = guarded(&error, []() -> Status {
    return fail(StatusCode::kCompileError, "it did not compile", "line 1: no");
  });
  EXPECT_EQ(status, DORAJIT_COMPILE_ERROR);
  EXPECT_EQ(dorajit_error_status(error), DORAJIT_COMPILE_ERROR);
  EXPECT_STREQ(dorajit_error_message(error), "it did not compile");
  EXPECT_STREQ(dorajit_error_log(error), "line 1: no");
  dorajit_error_destroy(error);
}

TEST(ErrorHandle, NullHandleIsEmpty) {
  EXPECT_EQ(dorajit_error_status(nullptr), DORAJIT_OK);
  EXPECT_STREQ(dorajit_error_message(nullptr), "");
  EXPECT_STREQ(dorajit_error_log(nullptr), "");
}

TEST(ErrorHandle, BadAllocIsOutOfMemory) {
  dorajit_error* error = nullptr;
  const dorajit_status status = guarded(&error, []() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status, DORAJIT_OUT_OF_MEMORY);
  EXPECT_STREQ(dorajit_error_message(error), "out of memory");
  dorajit_error_destroy(error);
  EXPECT_EQ(guarded(nullptr, []() -> Status { throw std::bad_alloc(); }), DORAJIT_OUT_OF_MEMORY);
}

TEST(ErrorHandle, OtherExceptionsAreInternal) {
  dorajit_error* error = nullptr;
  EXPECT_EQ(guarded(&error, []() -> Status { throw std::runtime_error("surprise"); }),
            DORAJIT_INTERNAL);
  EXPECT_NE(std::string(dorajit_error_message(error)).find("surprise"), std::string::npos);
  dorajit_error_destroy(error);
  EXPECT_EQ(guarded(&error, []() -> Status { throw 1; }), DORAJIT_INTERNAL);
  dorajit_error_destroy(error);
  EXPECT_EQ(guarded(&error, []() -> Status { return {}; }), DORAJIT_OK);
  EXPECT_EQ(error, nullptr);
}

TEST_F(CAbiTest, ErrorIsOptionalAndClearedBySuccess) {
  const EngineHandle engine = make_engine();
  HostArray data(ElementType::kFloat32, 10);
  HostArray channels(ElementType::kFloat32, 10);
  const Tensor matrix(data, {10});
  const Tensor gain(channels, {10});
  EXPECT_EQ(dorajit_compose(engine.get(), nullptr, matrix.get(), nullptr, gain.get(), 1,
                            matrix.get(), nullptr),
            DORAJIT_INVALID_ARGUMENT);
  auto* error = reinterpret_cast<dorajit_error*>(&data);
  EXPECT_EQ(dorajit_compose(engine.get(), nullptr, matrix.get(), matrix.get(), gain.get(), 1,
                            matrix.get(), &error),
            DORAJIT_OK);
  EXPECT_EQ(error, nullptr);
}

}  // namespace
}  // namespace dorajit::bindings
