// A process that composes again and again, as a training job does, beside a daemon.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autotune/engine_factory.h"
#include "runtime/base/settings.h"

namespace dorajit::tests {

inline constexpr std::array<std::int64_t, 3> kTrainedCols = {96, 160, 224};

// One engine and its data. For a child process, which speaks through its exit code.
class TrainingProcess {
 public:
  // `daemon_folder` is that of the socket.
  TrainingProcess(const std::string& cache_dir, const std::string& daemon_folder,
                  TunePolicy policy = TunePolicy::kAutomatic);

  // Composes once for each of kTrainedCols. False when a call failed or the bits of a result differ
  // from those of the first.
  bool step();
  // Whether all problems run with winners, whoever found them.
  [[nodiscard]] bool has_all_winners() const;
  // Whether this process itself has tuned, or waited for another's tuning.
  [[nodiscard]] bool has_tuned() const;

 private:
  struct Layer {
    std::int64_t cols = 0;
    std::vector<float> lora, base, gain, out, first_out;
  };
  bool compose(Layer& layer);

  autotune::EngineParts parts_;
  std::vector<Layer> layers_;
};

}  // namespace dorajit::tests
