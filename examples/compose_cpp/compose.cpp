// out = (gain - 1) * base + gain * (scale * lora) on host memory, checked against the expression.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dorajit/dorajit.hpp>
#include <vector>

int main() {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kCols = 256;
  constexpr float kScale = 0.5F;
  std::vector<float> lora(kRows * kCols);
  std::vector<float> base(kRows * kCols);
  std::vector<float> gain(kCols);
  std::vector<float> out(kRows * kCols);
  for (std::size_t i = 0; i < out.size(); ++i) {
    lora[i] = 0.001F * static_cast<float>(i % 97);
    base[i] = 1.0F / static_cast<float>(i + 1);
    gain[i % kCols] = 0.99F + 0.0001F * static_cast<float>(i % kCols);
  }

  try {
    using dorajit::ElementType;
    dorajit::Engine engine;
    engine.compose(nullptr, {lora.data(), {kRows, kCols}, ElementType::kFloat32},
                   {base.data(), {kRows, kCols}, ElementType::kFloat32},
                   {gain.data(), {kCols}, ElementType::kFloat32}, kScale,
                   {out.data(), {kRows, kCols}, ElementType::kFloat32});

    int differences = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float g = gain[i % kCols];
      const float scaled_lora = kScale * lora[i];
      const float expected = (g - 1.0F) * base[i] + g * scaled_lora;
      differences += out[i] != expected ? 1 : 0;
    }
    const dorajit::Statistics statistics = engine.statistics();
    std::printf(
        "composed %lld x %lld: %d elements differ from the plain expression (%lld compilations, "
        "%lld trials)\n",
        static_cast<long long>(kRows), static_cast<long long>(kCols), differences,
        static_cast<long long>(statistics.compilations), static_cast<long long>(statistics.trials));
    return differences == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const dorajit::Error& error) {
    std::fprintf(stderr, "%s: %s\n%s", dorajit::status_name(error.status()), error.what(),
                 error.log().c_str());
    return EXIT_FAILURE;
  }
}
