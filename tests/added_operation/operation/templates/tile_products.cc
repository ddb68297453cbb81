// The template of tile_products: the first stage stores y column by column in the workspace, the
// second multiplies.
#include <algorithm>
#include <format>

#include "kernel_templates/partial_sums.h"
#include "kernel_templates/template.h"

namespace dorajit::kernels {
namespace {

constexpr char kTile = 't';  // columns of a program
constexpr int kBuiltinTile = 8;

enum Size : std::size_t { kRowsOfX, kInner, kColsOfY };

Config config_of(int tile, int warps) { return {{kTile, tile}, {kWarps, warps}}; }

Config choose_default(const Variant&, const SpaceTraits& traits, int) {
  return config_of(kBuiltinTile, traits.kind == DeviceKind::kCpu ? traits.processors : 1);
}

// Tiles of 64 columns represent a feature that an older architecture lacks.
int widest_tile(const SpaceTraits& traits) {
  return traits.kind == DeviceKind::kCpu || traits.architecture >= 90 ? 64 : 32;
}

std::vector<Config> list_configs(const Variant& variant, const SpaceTraits& traits, int width,
                                 SpaceKind) {
  std::vector<Config> configs = {choose_default(variant, traits, width)};
  for (int tile = 16; tile <= widest_tile(traits); tile *= 2) {
    configs.push_back(config_of(tile, configs.front()[kWarps]));
  }
  return configs;
}

std::string why_invalid(const Variant&, const SpaceTraits& traits, const Config& config) {
  if (config != config_of(config[kTile], config[kWarps]) || config[kTile] < 1 ||
      config[kWarps] < 1 || (traits.kind == DeviceKind::kCuda && config[kWarps] > 32)) {
    return "its template does not allow it";
  }
  if (config[kTile] <= widest_tile(traits)) return {};
  return std::format("its tiles of {} columns are wider than {}", config[kTile],
                     widest_tile(traits));
}

std::string expression(const Config& config) {
  return std::format("dorajit::kernels::TileConfig{{{}, {}}}", config[kTile], config[kWarps]);
}

LaunchShape shape_launch(const Variant&, const Config& config, const LaunchArguments& arguments,
                         int) {
  const long long tiles = divide_up(arguments.sizes[kColsOfY], config[kTile]);
  const int threads = config[kWarps] * kThreadsPerWarp;
  return {.run = {.grid_x = tiles, .threads = threads},
          .later = {{{.grid_x = tiles,
                      .grid_y = arguments.sizes[kRowsOfX],
                      .threads = threads,
                      .shared_bytes = config[kTile] * static_cast<int>(sizeof(float))}}},
          .work = static_cast<double>(arguments.sizes[kRowsOfX]) *
                  static_cast<double>(arguments.sizes[kInner]) *
                  static_cast<double>(arguments.sizes[kColsOfY])};
}

std::int64_t packed_bytes(const Variant&, DeviceKind, const Sizes& sizes) {
  return sizes[kInner] * sizes[kColsOfY] * static_cast<std::int64_t>(sizeof(float));
}

std::vector<Sizes> list_verification_sizes(const Variant&, const Sizes& problem) {
  const std::int64_t inner = std::min<std::int64_t>(problem[kInner], 40);
  const std::int64_t cols = std::min<std::int64_t>(problem[kColsOfY], 131);
  return {{5, inner, cols}, {5, inner, cols}, {3, inner, std::max<std::int64_t>(1, cols - 3)}};
}

}  // namespace

extern constinit const Template tile_products_template = {
    .name = "tile_products",
    .cuda_source = "cuda/tile_products.cuh",
    .cpu_source = "cpu/tile_products.h",
    .entry_macro = "DORAJIT_TILE_PRODUCTS_KERNEL",
    .stages = two_stages,
    .default_config = choose_default,
    .config_space = list_configs,
    .why_config_is_invalid = why_invalid,
    .config_expression = expression,
    .launch_shape = shape_launch,
    .workspace_bytes = packed_bytes,
    .verification_sizes = list_verification_sizes,
};

}  // namespace dorajit::kernels
