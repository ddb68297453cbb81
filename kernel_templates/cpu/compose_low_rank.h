// compose_low_rank on the CPU: the counterpart of cuda/compose_low_rank.cuh. A program computes a
// block of rows of a span of columns.
#pragma once

#include "arguments.h"
#include "compose_low_rank_config.h"
#include "cpu/packed_product.h"
#include "cpu/typed_operands.h"
#include "math/compose_residual.h"

namespace dorajit::kernels {

template <ElementType... kTypes>
struct TypedLowRankOperands : TypedOperands<kLowRankCpuColumns, kTypes...> {
  static_assert(sizeof...(kTypes) == kLowRankOperands, "one element type per operand");
};

template <class Operands, int kBlockRows, int kBytes>
struct ComposeLowRankPrograms {
  static_assert(kBlockRows >= 16 && kBlockRows <= 128, "blocks must fit on the stack");

  using T = typename Operands::T;
  using Product = PackedProduct<T, kBlockRows, kBytes>;
  static constexpr int kSpan = Product::kSpan;
  static_assert(kSpan == kLowRankCpuColumns, "the host counts programs by it");

  const Operands& operands;
  const KernelArguments& arguments;

  struct Block {
    long long row;
    long long column;
    int rows;
    int columns;
  };

  [[nodiscard]] DORAJIT_FORMULA char* address(LowRankOperand operand, long long row,
                                              long long column) const {
    const OperandArgument& argument = arguments.operands[operand];
    return static_cast<char*>(argument.data) +
           (row * argument.row_stride + column) * size_in_bytes(operands.type(operand));
  }

  DORAJIT_FORMULA void pack(Product& product, const Block& block, long long first_k,
                            long long depth) const {
    for (int row = 0; row < block.rows; ++row) {
      T* const to = product.packed_b[row];
      const T* const from = operands.template load<kLowRankLow>(
          address(kLowRankLow, block.row + row, first_k), depth, to);
      if (from != to) __builtin_memcpy(to, from, static_cast<unsigned long>(depth) * sizeof(T));
    }
    // The remaining rows of the last tile are computed, too, and never read.
    for (int row = block.rows; row % Product::Tile::kRows != 0; ++row) {
      for (long long k = 0; k < depth; ++k) product.packed_b[row][k] = T(0);
    }
    T column[Product::kDepth] = {};
    for (int j = 0; j < block.columns; ++j) {
      product.pack_a_column(j,
                            operands.template load<kLowRankLoraB>(
                                address(kLowRankLoraB, block.column + j, first_k), depth, column),
                            depth);
    }
    for (long long k = 0; k < depth; ++k) column[k] = T(0);
    for (int j = block.columns; j < kSpan; ++j) product.pack_a_column(j, column, depth);
  }

  DORAJIT_FORMULA void multiply(Product& product, const Block& block) const {
    const long long rank = arguments.sizes[kLowRankRank];
    for (long long first_k = 0; first_k < rank; first_k += Product::kDepth) {
      const long long depth = rank - first_k < Product::kDepth
                                  ? rank - first_k
                                  : static_cast<long long>(Product::kDepth);
      pack(product, block, first_k, depth);
      product.add_block(block.rows, depth, first_k == 0, [](int) {});
    }
  }

  DORAJIT_FORMULA void compose(const T* product, const T* gain, const T* bias, long long row,
                               const Block& block) const {
    const ComposeResidual<T> formula(arguments.scalars);
    T buffer[kSpan];
    T out[kSpan];
    T inner[kSpan];
    const T* const result = operands.template load<kLowRankResult>(
        address(kLowRankResult, row, block.column), block.columns, buffer);
    for (int i = 0; i < block.columns; ++i) {
      const T matrix[] = {product[i], result[i]};
      const T broadcast[] = {gain[i], bias[i]};
      T made[2];
      formula(matrix, broadcast, made);
      out[i] = made[0];
      inner[i] = made[1];
    }
    operands.template store<kLowRankOut>(out, block.columns,
                                         address(kLowRankOut, row, block.column));
    if (operands.type(kLowRankInner) != ElementType::kAbsent) {
      operands.template store<kLowRankInner>(inner, block.columns,
                                             address(kLowRankInner, row, block.column));
    }
  }

  DORAJIT_FORMULA void run_program(long long program) const {
    const long long columns = arguments.sizes[kLowRankColumns];
    const long long spans = (columns + kSpan - 1) / kSpan;
    Block block{program / spans * kBlockRows, program % spans * kSpan, kBlockRows, kSpan};
    const long long rows_left = arguments.sizes[kLowRankRows] - block.row;
    const long long columns_left = columns - block.column;
    if (rows_left < kBlockRows) block.rows = static_cast<int>(rows_left);
    if (columns_left < kSpan) block.columns = static_cast<int>(columns_left);
    const bool has_product =
        low_rank_depth(arguments.scalars[0], arguments.sizes[kLowRankRank]) > 0;
    Product product;
    if (has_product) multiply(product, block);
    const T zeros[kSpan] = {};
    T gain_buffer[kSpan];
    T bias_buffer[kSpan];
    const T* const gain = operands.template load<kLowRankGain>(
        address(kLowRankGain, 0, block.column), block.columns, gain_buffer);
    const T* const bias =
        operands.type(kLowRankBias) == ElementType::kAbsent
            ? zeros
            : operands.template load<kLowRankBias>(address(kLowRankBias, 0, block.column),
                                                   block.columns, bias_buffer);
    for (int row = 0; row < block.rows; ++row) {
      compose(has_product ? product.product[row] : zeros, gain, bias, block.row + row, block);
    }
  }

  static DORAJIT_FORMULA void run(const Operands& operands, const KernelArguments& arguments,
                                  long long first_program, long long last_program) {
    const ComposeLowRankPrograms programs{operands, arguments};
    for (long long program = first_program; program < last_program; ++program) {
      programs.run_program(program);
    }
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_COMPOSE_LOW_RANK_KERNEL(config, ...)                                           \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(                       \
      const dorajit::kernels::KernelArguments* arguments, long long first_program,             \
      long long last_program) {                                                                \
    using Operands = dorajit::kernels::TypedLowRankOperands<__VA_ARGS__>;                      \
    dorajit::kernels::ComposeLowRankPrograms<Operands, config.rows,                            \
                                             dorajit::kernels::kPackBytes>::run(Operands{},    \
                                                                                *arguments,    \
                                                                                first_program, \
                                                                                last_program); \
  }
