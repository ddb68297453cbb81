// How programs share the work of weight_norm if each multiprocessor has one program. A task is a
// part of a block of rows; a program executes a run of consecutive tasks, in row order.
#pragma once

#include "arguments.h"
#include "math/weight_norm.h"

namespace dorajit::kernels {

struct NormTask {
  long long first_row;
  int part;
  int first_tile;
  int last_tile;
  bool has_new_rows;  // the program's previous task had other rows
  bool has_last;      // the program has no later task of these rows
};

// Calls visit(task) for each task of this program: `rows` rows, tiles of `columns` columns.
template <class Visit>
__device__ __forceinline__ void visit_norm_tasks(const KernelArguments& arguments,
                                                 const NormParts& parts, int rows, int columns,
                                                 const Visit& visit) {
  const int tiles = static_cast<int>((arguments.sizes[kNormColumns] + columns - 1) / columns);
  const int tiles_of_part = static_cast<int>(parts.columns() / columns);
  const int count = static_cast<int>(parts.count);
  const int tasks = static_cast<int>((arguments.sizes[kNormRows] + rows - 1) / rows) * count;
  const int program = static_cast<int>(blockIdx.x);
  const int programs = static_cast<int>(gridDim.x);
  const int each = tasks / programs;
  const int more = tasks % programs;  // programs that have one task more
  const int first = each * program + (program < more ? program : more);
  const int last = first + each + (program < more ? 1 : 0);
  int block = first / count;
  int part = first % count;
#pragma unroll 1
  for (int i = first; i < last; ++i) {
    const int first_tile = part * tiles_of_part;
    const int last_tile = first_tile + tiles_of_part;
    visit(NormTask{static_cast<long long>(block) * rows, part, first_tile,
                   last_tile < tiles ? last_tile : tiles, i == first || part == 0,
                   i + 1 == last || part + 1 == count});
    if (++part == count) {
      part = 0;
      ++block;
    }
  }
}

}  // namespace dorajit::kernels
