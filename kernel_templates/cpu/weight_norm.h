// The norms of the rows of W + s B A on the CPU: the counterpart of cuda/weight_norm.cuh. There is
// no second stage, because a program sums complete rows.
#pragma once

#include "arguments.h"
#include "cpu/packed_product.h"
#include "cpu/typed_operands.h"
#include "weight_norm_config.h"

namespace dorajit::kernels {

// The operands whose element types one kernel was compiled for. builtin_weight_norm.h has the
// counterpart whose types are looked up at run time.
template <ElementType... kTypes>
struct TypedNormOperands : TypedOperands<kNormSpan, kTypes...> {
  using Base = TypedOperands<kNormSpan, kTypes...>;
  using Base::kType;
  using typename Base::T;
  static_assert(sizeof...(kTypes) == kNormOperands, "one element type per operand");
  static_assert(kType[kNormGain] == ElementType::kAbsent ||
                    kType[kNormMagnitude] != ElementType::kAbsent,
                "a gain needs a magnitude");

  // Rounds as storing the magnitude would.
  DORAJIT_FORMULA T round_to_magnitude(T value) const {
    if constexpr (kType[kNormMagnitude] == ElementType::kAbsent) {
      return value;
    } else {
      using Magnitude = Element<kType[kNormMagnitude]>;
      return Magnitude::widen(Magnitude::narrow(value));
    }
  }
};

template <class Operands, int kBlockRows, int kBytes>
struct WeightNormPrograms {
  static_assert(kBlockRows >= 16 && kBlockRows <= 128, "blocks must fit on the stack");

  using T = typename Operands::T;
  using Product = PackedProduct<T, kBlockRows, kBytes>;

  static constexpr int kChainBytes = kNormChains * static_cast<int>(sizeof(T));
  static constexpr int kChainPackBytes = kBytes < kChainBytes ? kBytes : kChainBytes;
  static constexpr int kChainPacks = kChainBytes / kChainPackBytes;
  // Rows that are summed side by side, to hide the latency of dependent additions.
  static constexpr int kRowsAtOnce = 4;
  static constexpr int kCacheLine = 64;

  const Operands& operands;
  const KernelArguments& arguments;

  [[nodiscard]] DORAJIT_FORMULA char* address(NormOperand operand, long long row,
                                              long long col) const {
    const OperandArgument& argument = arguments.operands[operand];
    return static_cast<char*>(argument.data) +
           (row * argument.row_stride + col) * size_in_bytes(operands.type(operand));
  }

  // The hardware prefetcher alone does not keep up with short stretches of many rows.
  DORAJIT_FORMULA void prefetch_weight(long long row, long long col, long long count) const {
    const char* from = address(kNormWeight, row, col);
    const long long bytes = count * size_in_bytes(operands.type(kNormWeight));
    for (long long i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(from + i, 0, 2);
  }

  DORAJIT_FORMULA void pack_b(Product& product, long long first_row, int rows, long long first_k,
                              long long depth) const {
    for (int row = 0; row < rows; ++row) {
      T* to = product.packed_b[row];
      const T* from = operands.template load<kNormLoraB>(
          address(kNormLoraB, first_row + row, first_k), depth, to);
      if (from != to) __builtin_memcpy(to, from, static_cast<unsigned long>(depth) * sizeof(T));
    }
    // The remaining rows of the last tile are computed, too, and never read.
    for (int row = rows; row % Product::Tile::kRows != 0; ++row) {
      for (long long k = 0; k < depth; ++k) product.packed_b[row][k] = T(0);
    }
  }

  DORAJIT_FORMULA void pack_a(Product& product, long long first_k, long long depth, long long col,
                              long long count) const {
    alignas(64) T buffer[kNormSpan];
    for (long long i = count; i < kNormSpan; ++i) buffer[i] = T(0);
    for (long long k = 0; k < depth; ++k) {
      const T* row =
          operands.template load<kNormLoraA>(address(kNormLoraA, first_k + k, col), count, buffer);
      if (count < kNormSpan && row != buffer) {
        for (long long i = 0; i < count; ++i) buffer[i] = row[i];
        row = buffer;
      }
      product.pack_a(k, row);
    }
  }

  // Computes the product of a span, and prefetches the weight of that span.
  DORAJIT_FORMULA void multiply(Product& product, long long first_row, int rows, long long col,
                                long long count) const {
    const long long rank = arguments.sizes[kNormRank];
    for (long long first_k = 0; first_k < rank; first_k += Product::kDepth) {
      const bool is_last = rank - first_k <= Product::kDepth;
      const long long depth = is_last ? rank - first_k : Product::kDepth;
      // If B has only one block, it serves all spans.
      if (col == 0 || rank > Product::kDepth) pack_b(product, first_row, rows, first_k, depth);
      pack_a(product, first_k, depth, col, count);
      product.add_block(rows, depth, first_k == 0, [&](int tile) __attribute__((always_inline)) {
        if (is_last && tile < rows) prefetch_weight(first_row + tile, col, count);
      });
    }
  }

  // The sums of a span of kRowsAtOnce rows. Rows from `rows` on repeat the last row.
  DORAJIT_FORMULA void sum_rows(const T* product, int product_stride, long long first_row, int rows,
                                long long col, long long count, T* nodes) const {
    using P = Pack<T, kChainPackBytes>;
    const T scale = static_cast<T>(arguments.scalars[0]);
    alignas(64) T buffer[kRowsAtOnce][kNormSpan];
    const T* weight[kRowsAtOnce];
    DORAJIT_UNROLL_FULLY
    for (int row = 0; row < kRowsAtOnce; ++row) {
      weight[row] = operands.template load<kNormWeight>(
          address(kNormWeight, first_row + (row < rows ? row : rows - 1), col), count, buffer[row]);
    }
    P factor;
    factor.fill(scale);
    P chains[kRowsAtOnce][kChainPacks];
    DORAJIT_UNROLL_FULLY
    for (auto& chains_of_row : chains) {
      DORAJIT_UNROLL_FULLY
      for (P& chain : chains_of_row) chain.fill(T(0));
    }
    long long done = 0;
    for (; done + kNormChains <= count; done += kNormChains) {
      DORAJIT_UNROLL_FULLY
      for (int row = 0; row < kRowsAtOnce; ++row) {
        DORAJIT_UNROLL_FULLY
        for (int i = 0; i < kChainPacks; ++i) {
          P term;
          P value;
          term.load(product + row * product_stride + done + i * P::kWidth);
          value.load(weight[row] + done + i * P::kWidth);
          multiply_add(factor, term, value);
          multiply_add(value, value, chains[row][i]);
        }
      }
    }
    DORAJIT_UNROLL_FULLY
    for (int row = 0; row < kRowsAtOnce; ++row) {
      T sums[kNormChains];
      DORAJIT_UNROLL_FULLY
      for (int i = 0; i < kChainPacks; ++i) chains[row][i].store(sums + i * P::kWidth);
      for (long long i = done; i < count; ++i) {
        sums[i - done] =
            add_to_chain(scale, product[static_cast<long long>(row) * product_stride + i],
                         weight[row][i], sums[i - done]);
      }
      nodes[row] = sum_of_neighbours<kNormChains>(sums);
    }
  }

  DORAJIT_FORMULA void finish_row(long long row, T square) const {
    const T norm = square_root(square);
    if (operands.type(kNormNorm) != ElementType::kAbsent) {
      operands.template store<kNormNorm>(&norm, 1, address(kNormNorm, 0, row));
    }
    if (operands.type(kNormSquare) != ElementType::kAbsent) {
      operands.template store<kNormSquare>(&square, 1, address(kNormSquare, 0, row));
    }
    if (operands.type(kNormGain) != ElementType::kAbsent) {
      T buffer;
      const T magnitude =
          *operands.template load<kNormMagnitude>(address(kNormMagnitude, 0, row), 1, &buffer);
      const T divisor = operands.round_to_magnitude(
          divisor_of<T>(norm, static_cast<T>(least_norm(operands.type(kNormMagnitude)))));
      const T gain = magnitude / divisor;
      operands.template store<kNormGain>(&gain, 1, address(kNormGain, 0, row));
      if (operands.type(kNormDivisor) != ElementType::kAbsent) {
        operands.template store<kNormDivisor>(&divisor, 1, address(kNormDivisor, 0, row));
      }
    }
  }

  DORAJIT_FORMULA void run_program(long long program) const {
    const long long columns = arguments.sizes[kNormColumns];
    const long long first_row = program * kBlockRows;
    const long long left = arguments.sizes[kNormRows] - first_row;
    const int rows = static_cast<int>(left < kBlockRows ? left : kBlockRows);
    const bool has_product =
        static_cast<T>(arguments.scalars[0]) != T(0) && arguments.sizes[kNormRank] > 0;
    Product product;
    const T zeros[kNormSpan] = {};
    SpanSums<T, kBlockRows> sums;
    for (long long col = 0; col < columns; col += kNormSpan) {
      const long long count = columns - col < kNormSpan ? columns - col : kNormSpan;
      if (has_product) multiply(product, first_row, rows, col, count);
      T nodes[kBlockRows] = {};
      for (int row = 0; row < rows; row += kRowsAtOnce) {
        if (!has_product && col + 2LL * kNormSpan <= columns) {
          for (int i = row; i < rows && i < row + kRowsAtOnce; ++i) {
            prefetch_weight(first_row + i, col + kNormSpan, kNormSpan);
          }
        }
        sum_rows(has_product ? product.product[row] : zeros, has_product ? kNormSpan : 0,
                 first_row + row, rows - row, col, count, nodes + row);
      }
      sums.push(nodes);
    }
    T squares[kBlockRows];
    sums.root(squares);
    for (int row = 0; row < rows; ++row) finish_row(first_row + row, T(0) + squares[row]);
  }

  static DORAJIT_FORMULA void run(const Operands& operands, const KernelArguments& arguments,
                                  long long first_program, long long last_program) {
    const WeightNormPrograms programs{operands, arguments};
    for (long long program = first_program; program < last_program; ++program) {
      programs.run_program(program);
    }
  }
};

}  // namespace dorajit::kernels

// The code that is generated per kernel. `config` is in parentheses.
#define DORAJIT_WEIGHT_NORM_KERNEL(config, ...)                                            \
  extern "C" __attribute__((visibility("default"))) void dorajit_kernel(                   \
      const dorajit::kernels::KernelArguments* arguments, long long first_program,         \
      long long last_program) {                                                            \
    using Operands = dorajit::kernels::TypedNormOperands<__VA_ARGS__>;                     \
    dorajit::kernels::WeightNormPrograms<Operands, config.rows,                            \
                                         dorajit::kernels::kPackBytes>::run(Operands{},    \
                                                                            *arguments,    \
                                                                            first_program, \
                                                                            last_program); \
  }                                                                                        \
  extern "C" __attribute__((visibility("default"))) void dorajit_finish(                   \
      const dorajit::kernels::KernelArguments*, long long, long long) {}
