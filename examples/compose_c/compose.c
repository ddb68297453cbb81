/* out = (gain - 1) * base + gain * (scale * lora) on host memory, checked element by element. */
#include <dorajit/dorajit.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLS = 256 };

static float lora[ROWS][COLS];
static float base[ROWS][COLS];
static float gain[COLS];
static float out[ROWS][COLS];

/* Prints what went wrong and destroys the error. */
static int fail(const char* what, dorajit_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, dorajit_status_name(dorajit_error_status(error)),
          dorajit_error_message(error));
  if (dorajit_error_log(error)[0] != '\0') fprintf(stderr, "%s\n", dorajit_error_log(error));
  dorajit_error_destroy(error);
  return EXIT_FAILURE;
}

/* A compact tensor of float32 in host memory; `shape` must outlive it. */
static DLTensor host_tensor(void* data, int ndim, int64_t* shape) {
  DLTensor tensor = {0};
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.ndim = ndim;
  tensor.dtype.code = kDLFloat;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static void fill_inputs(void) {
  for (int column = 0; column < COLS; ++column) {
    gain[column] = 0.99f + 0.0001f * (float)column;
    for (int row = 0; row < ROWS; ++row) {
      lora[row][column] = 0.001f * (float)(row - column);
      base[row][column] = 1.0f / (float)(row + column + 1);
    }
  }
}

static int count_differences(float scale) {
  int differences = 0;
  for (int row = 0; row < ROWS; ++row) {
    for (int column = 0; column < COLS; ++column) {
      const float g = gain[column];
      const float scaled_lora = scale * lora[row][column];
      const float expected = (g - 1.0f) * base[row][column] + g * scaled_lora;
      differences += out[row][column] != expected;
    }
  }
  return differences;
}

int main(void) {
  dorajit_error* error = NULL;
  dorajit_engine* engine = NULL;
  if (dorajit_engine_create(NULL, &engine, &error) != DORAJIT_OK) {
    return fail("dorajit_engine_create", error);
  }

  int64_t matrix_shape[] = {ROWS, COLS};
  int64_t gain_shape[] = {COLS};
  const DLTensor lora_tensor = host_tensor(lora, 2, matrix_shape);
  const DLTensor base_tensor = host_tensor(base, 2, matrix_shape);
  const DLTensor gain_tensor = host_tensor(gain, 1, gain_shape);
  const DLTensor out_tensor = host_tensor(out, 2, matrix_shape);
  const double scale = 0.5;

  fill_inputs();
  dorajit_statistics statistics = {.struct_size = sizeof statistics};
  if (dorajit_compose(engine, NULL, &lora_tensor, &base_tensor, &gain_tensor, scale, &out_tensor,
                      &error) != DORAJIT_OK ||
      dorajit_engine_statistics(engine, &statistics, &error) != DORAJIT_OK) {
    dorajit_engine_destroy(engine);
    return fail("compose", error);
  }
  dorajit_engine_destroy(engine);

  const int differences = count_differences((float)scale);
  printf("composed %d x %d: %d elements differ from the plain expression (%" PRId64
         " compilations, %" PRId64 " trials)\n",
         ROWS, COLS, differences, statistics.compilations, statistics.trials);
  return differences == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
