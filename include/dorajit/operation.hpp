// The operations of the library as values of the C++ interface (dorajit.hpp).
#ifndef DORAJIT_OPERATION_HPP_
#define DORAJIT_OPERATION_HPP_

#include <dorajit/dorajit.h>

#include <cstddef>
#include <cstdint>
#include <dorajit/error.hpp>
#include <string>
#include <vector>

namespace dorajit {
inline namespace v0 {

// An operation of the library. Cheap to copy; valid as long as the library is loaded.
class Operation {
 public:
  // Converts from a name: engine.warmup("compose", ...). Throws Error (kInvalidArgument) for an
  // unknown name.
  Operation(const char* name) : handle_(dorajit_operation_find(name)) {
    if (handle_ != nullptr) return;
    throw Error(Status::kInvalidArgument, std::string("there is no operation `") +
                                              (name == nullptr ? "" : name) +
                                              "`; Operation::all() lists the operations");
  }

  static std::vector<Operation> all() {
    std::vector<Operation> operations;
    for (std::int32_t i = 0; i < dorajit_operation_count(); ++i) {
      operations.push_back(Operation(dorajit_operation_at(i)));
    }
    return operations;
  }

  const char* name() const { return info().name; }
  const char* documentation() const { return info().documentation; }  // what it computes
  std::int32_t num_scalars() const { return info().num_scalars; }

  // The names of its scalars, in the order of a call.
  std::vector<const char*> scalars() const {
    const dorajit_operation_info known = info();
    return {known.scalars, known.scalars + known.num_scalars};
  }

  // Descriptions of its operands, in the order of a call.
  std::vector<dorajit_operand_info> operands() const {
    std::vector<dorajit_operand_info> operands(static_cast<std::size_t>(info().num_operands));
    for (std::size_t i = 0; i < operands.size(); ++i) {
      operands[i].struct_size = sizeof operands[i];
      detail::check([&](dorajit_error** error) {
        return dorajit_operation_operand(handle_, static_cast<std::int32_t>(i), &operands[i],
                                         error);
      });
    }
    return operands;
  }

  // The handle of the C interface.
  const dorajit_operation* get() const noexcept { return handle_; }

 protected:
  explicit Operation(const dorajit_operation* handle) : handle_(handle) {}

 private:
  dorajit_operation_info info() const {
    dorajit_operation_info info{};
    info.struct_size = sizeof info;
    detail::check(
        [&](dorajit_error** error) { return dorajit_operation_describe(handle_, &info, error); });
    return info;
  }

  const dorajit_operation* handle_;
};

}  // namespace v0
}  // namespace dorajit

#endif  // DORAJIT_OPERATION_HPP_
