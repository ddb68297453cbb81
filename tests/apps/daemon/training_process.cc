#include "tests/apps/daemon/training_process.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "runtime/engine.h"
#include "tests/apps/daemon/running_daemon.h"

namespace dorajit::tests {
namespace {

constexpr std::int64_t kRows = 16;
constexpr launch::DeviceId kCpu{};

Settings settings_in(const std::string& cache_dir, const std::string& daemon_folder,
                     TunePolicy policy) {
  Settings settings;
  settings.daemon_dir = daemon_folder;
  settings.cache_dir = cache_dir;
  settings.tune_policy = policy;
  settings.tune_seconds = 0.2;
  settings.scratch_bytes = 32 << 20;
  return settings;
}

std::vector<float> values(std::int64_t count, unsigned seed) {
  std::minstd_rand random(seed);
  std::uniform_real_distribution<float> between(-2, 2);
  std::vector<float> found(static_cast<std::size_t>(count));
  std::ranges::generate(found, [&] { return between(random); });
  return found;
}

launch::TensorView view(std::vector<float>& data, std::int64_t rows, std::int64_t cols) {
  return {.data = data.data(),
          .type = kernels::ElementType::kFloat32,
          .device = kCpu,
          .rows = rows,
          .cols = cols,
          .row_stride = cols};
}

}  // namespace

TrainingProcess::TrainingProcess(const std::string& cache_dir, const std::string& daemon_folder,
                                 TunePolicy policy)
    : parts_(autotune::make_engine(settings_in(cache_dir, daemon_folder, policy))) {
  for (const std::int64_t cols : kTrainedCols) {
    layers_.push_back({.cols = cols,
                       .lora = values(kRows * cols, 1),
                       .base = values(kRows * cols, 2),
                       .gain = values(cols, 3),
                       .out = values(kRows * cols, 4),
                       .first_out = {}});
  }
}

bool TrainingProcess::compose(Layer& layer) {
  const std::array<launch::TensorView, 4> operands = {
      view(layer.lora, kRows, layer.cols), view(layer.base, kRows, layer.cols),
      view(layer.gain, 1, layer.cols), view(layer.out, kRows, layer.cols)};
  const double scale = 0.7;
  std::ranges::fill(layer.out, 0.0F);
  const Status done = parts_.engine->run(
      {.operation = &kernels::operation("compose"), .operands = operands, .scalars = {&scale, 1}},
      nullptr);
  if (!done) return false;
  if (layer.first_out.empty()) layer.first_out = layer.out;
  return std::memcmp(layer.out.data(), layer.first_out.data(), layer.out.size() * sizeof(float)) ==
         0;
}

bool TrainingProcess::step() {
  return std::ranges::all_of(layers_, [this](Layer& layer) { return compose(layer); });
}

bool TrainingProcess::has_all_winners() const {
  return std::ranges::all_of(kTrainedCols, [this](std::int64_t cols) {
    const auto answer = parts_.engine->prepare(cpu_problem(cols), kCpu);
    return answer && (answer->origin == launch::ConfigOrigin::kUserDatabase ||
                      answer->origin == launch::ConfigOrigin::kTuned);
  });
}

bool TrainingProcess::has_tuned() const {
  const Statistics& statistics = parts_.engine->statistics();
  return statistics.trials != 0 || statistics.tuned_problems != 0;
}

}  // namespace dorajit::tests
