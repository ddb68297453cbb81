#include "apps/cli/options/problem_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <format>
#include <optional>
#include <ranges>
#include <string_view>

#include "apps/cli/options/variant_options.h"
#include "apps/cli/terminal/number_range.h"
#include "apps/cli/terminal/table.h"
#include "kernel_templates/sizes.h"
#include "kernel_templates/spaces.h"
#include "own_kernels/description.h"
#include "own_kernels/kernel.h"
#include "runtime/base/files.h"
#include "runtime/base/json_text.h"
#include "runtime/base/printable_text.h"
#include "runtime/base/settings.h"
#include "runtime/launch/problem.h"

namespace dorajit::cli {
namespace {

Result<std::string> read_text(const std::filesystem::path& path) {
  auto text = read_regular_file(path, own_kernels::Description::kMaxBytes);
  if (text) return *std::move(text);
  return fail(StatusCode::kIoError,
              std::format("{} cannot be read: {}", path.string(), text.error()));
}

// A source that is the name of a file beside the description is read, as Python's Kernel does.
Result<std::string> read_description(const std::string& path) {
  DORAJIT_ASSIGN(std::string text, read_text(path));
  auto parsed = parse_json(text);
  if (!parsed) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{} is not a JSON document: {}", path, parsed.error().message));
  }
  auto& json = *parsed;
  const auto named = json_member<std::string>(json, "source");
  if (!named) return text;
  const std::string& source = *named;
  const bool is_file =
      (source.ends_with(".cu") || source.ends_with(".cuh")) && !source.contains('\n');
  if (!is_file) return text;
  const auto beside = std::filesystem::path(path).parent_path() / source;
  DORAJIT_ASSIGN(json["source"], read_text(beside));
  if (!json.contains("file")) json["file"] = beside.filename().string();
  return json.dump();
}

// "4096x12288"
std::optional<std::int64_t> parse_product(std::string_view text) {
  const auto factors = parse_numbers(text, 'x');
  if (!factors) return std::nullopt;
  std::int64_t product = 1;
  for (const std::int64_t factor : *factors) {
    if (factor < 0 || __builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

// "n=4096x12288,m=7"
Result<kernels::Sizes> parse_integers(std::string_view text, const kernels::Operation& kernel) {
  kernels::Sizes sizes{};
  std::vector<std::string_view> missing;
  for (const kernels::Dimension& one : kernel.dimensions) {
    if (one.keying < kernels::Keying::kDerived) missing.push_back(one.name);
  }
  for (const auto part : std::views::split(text, ',')) {
    const std::string_view entry(part);
    const std::size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = entry.substr(0, equals);
    const auto value =
        equals < entry.size() ? parse_product(entry.substr(equals + 1)) : std::nullopt;
    const auto known = std::ranges::find(kernel.dimensions, name, &kernels::Dimension::name);
    if (known != kernel.dimensions.end() && !std::ranges::contains(missing, name) &&
        known->keying < kernels::Keying::kDerived) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--with {}: `{}` is given twice", text, name));
    }
    if (equals < entry.size() && known == kernel.dimensions.end()) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("--with {}: `{}` has no integer `{}`", text, kernel.name, name));
    }
    if (!value || known == kernel.dimensions.end()) {
      return fail(
          StatusCode::kInvalidArgument,
          std::format("--with {}: \"{}\" is no NAME=SIZE of `{}`; a size is a number from 0 "
                      "or a product, as in 4096x12288",
                      text, entry, kernel.name));
    }
    sizes[static_cast<std::size_t>(known - kernel.dimensions.begin())] = *value;
    std::erase(missing, name);
  }
  if (missing.empty()) return sizes;
  return fail(StatusCode::kInvalidArgument, std::format("--with {}: `{}` of `{}` is missing", text,
                                                        missing.front(), kernel.name));
}

Result<kernels::Variant> variant_of(const kernels::Operation& kernel,
                                    const VariantOptions& options) {
  if (options.types.empty()) {
    const auto type = kernels::parse_element_type(options.type);
    const auto variant = type ? own_kernels::variant_of(kernel, *type) : std::nullopt;
    if (variant) return *variant;
    return fail(StatusCode::kInvalidArgument,
                std::format("--type {}: `{}` has no such element type; --types gives one for each "
                            "of its tensors",
                            options.type, kernel.name));
  }
  kernels::Variant variant{.operation = &kernel};
  const auto refuse = [&](std::string_view why) {
    return fail(StatusCode::kInvalidArgument,
                std::format("--types {}: {}", joined(options.types, ","), why));
  };
  if (options.types.size() != kernel.operands.size()) {
    return refuse(std::format("these are {} types; `{}` has {} tensors", options.types.size(),
                              kernel.name, kernel.operands.size()));
  }
  for (std::size_t i = 0; i < options.types.size(); ++i) {
    const auto type = kernels::parse_element_type(options.types[i]);
    if (!type) {
      return refuse(
          std::format("\"{}\" is none of: f32, bf16, f16, f64, f8e4m3, f8e5m2, i8, i16, i32, i64, "
                      "u8, u16, u32, u64, bool",
                      options.types[i]));
    }
    variant.types[i] = *type;
  }
  if (kernels::is_supported(variant)) return variant;
  const std::string_view why = kernel.why_unsupported(variant);
  return refuse(why.empty() ? "no tensor may be left out" : why);
}

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;

Result<std::vector<kernels::Sizes>> wanted_sizes(const ProblemOptions& options,
                                                 const kernels::Operation& operation) {
  std::vector<kernels::Sizes> wanted;
  for (const std::string& text : options.shapes) {
    DORAJIT_ASSIGN(const std::vector<std::int64_t> listed, parse_shape(text, operation));
    DORAJIT_ASSIGN(const kernels::Sizes sizes, make_sizes(operation, listed, options.sizes));
    wanted.push_back(sizes);
  }
  if (options.shapes.empty() && names_any(options.sizes)) {
    DORAJIT_ASSIGN(const kernels::Sizes sizes, make_sizes(operation, {}, options.sizes));
    wanted.push_back(sizes);
  }
  return wanted;
}

// Without the byte order mark and the carriage return that editors of other systems write.
std::string_view plain(std::string_view line, int number) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (number == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// One problem a line, as `dorajit show` names them; blank lines and lines that begin with # are
// skipped.
Result<std::vector<launch::Problem>> read_problems(const std::string& path) {
  const auto text = read_regular_file(path, kMaxFileBytes);
  if (!text) {
    return fail(StatusCode::kIoError,
                std::format("cannot read {}: {}; --from takes a file of problems, one a line", path,
                            text.error()));
  }
  std::vector<launch::Problem> problems;
  std::string_view rest = *text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = plain(cut_line(rest), number);
    if (line.empty() || line.starts_with('#')) continue;
    const auto problem = parse_key(line);
    if (!problem) {
      return fail(problem.error().code,
                  std::format("{}:{}: {}", path, number, problem.error().message));
    }
    problems.push_back(*problem);
  }
  if (problems.empty()) {
    return fail(StatusCode::kInvalidArgument, path + " has no problem in it");
  }
  return problems;
}

// Those that the options name by themselves, without those of the file.
Result<std::vector<launch::Problem>> named_problems(const ProblemOptions& options,
                                                    kernels::DeviceKind kind,
                                                    const std::string& command) {
  if (!options.own_kernel.file.empty()) {
    if (names_any(options.sizes) || !options.shapes.empty()) {
      return fail(StatusCode::kInvalidArgument,
                  "the sizes of a problem of --kernel are given by --with NAME=SIZE,...");
    }
    return own_kernel_problems(options.own_kernel, options.variant, options.file.empty());
  }
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  DORAJIT_ASSIGN(const std::vector<kernels::Sizes> wanted,
                 wanted_sizes(options, *variant.operation));
  std::vector<launch::Problem> problems;
  for (const kernels::Sizes& sizes : wanted) {
    DORAJIT_TRY(launch::check_size(variant, sizes));
    problems.push_back(launch::make_problem(variant, kind, sizes));
  }
  if (names_problems(options)) return problems;
  return fail(StatusCode::kInvalidArgument,
              std::format("{} needs a problem: --shape RxC, {} or --from FILE", command,
                          size_options_text(*variant.operation)));
}

// Options that say what sizes are of have no effect without sizes.
void require_sizes(const CLI::App& app, const ProblemOptions& options) {
  if (names_any(options.sizes) || !options.shapes.empty() || !options.own_kernel.file.empty()) {
    return;
  }
  for (const char* name : {"--op", "--type", "--gain-type", "--types", "--per-row"}) {
    if (app.get_option(name)->count() > 0) {
      throw CLI::RequiresError(name, "--shape RxC, or --kernel FILE.json");
    }
  }
}

}  // namespace

void add_own_kernel_options(CLI::App& app, OwnKernelOptions& options) {
  CLI::Option* kernel =
      app.add_option("--kernel", options.file,
                     "A kernel of one's own, by its description (docs/own_kernel_format.md)")
          ->option_text("FILE.json");
  app.add_option(
         "--with", options.with,
         "The integers of a problem of --kernel, each a number or a product; may be repeated")
      ->option_text("NAME=SIZE,...")
      ->needs(kernel);
}

Result<std::vector<launch::Problem>> own_kernel_problems(const OwnKernelOptions& options,
                                                         const VariantOptions& types,
                                                         bool needs_problem) {
  DORAJIT_ASSIGN(const std::string description, read_description(options.file));
  DORAJIT_ASSIGN(const kernels::Operation* kernel, own_kernels::make_kernel(description));
  if (options.with.empty() && !needs_problem) return std::vector<launch::Problem>();
  DORAJIT_ASSIGN(const kernels::Variant variant, variant_of(*kernel, types));
  if (options.with.empty()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("--kernel {} needs a problem: --with {}=SIZE,...", options.file,
                            kernel->dimensions.empty() ? "NAME" : kernel->dimensions.front().name));
  }
  std::vector<launch::Problem> problems;
  for (const std::string& text : options.with) {
    DORAJIT_ASSIGN(const kernels::Sizes sizes, parse_integers(text, *kernel));
    DORAJIT_TRY(launch::check_size(variant, sizes));
    problems.push_back(launch::make_problem(variant, kernels::DeviceKind::kCuda, sizes));
  }
  return problems;
}

Result<launch::Problem> parse_key(std::string_view key) {
  const auto problem = launch::parse_problem(key);
  if (problem && std::has_single_bit(static_cast<unsigned>(problem->vector_width))) return *problem;
  const std::string_view name = key.substr(0, key.find('/'));
  if (name.contains('@') && kernels::find_operation(name) == nullptr) {
    return fail(StatusCode::kInvalidArgument,
                std::format("the own kernel {} is not known here; give its description by --kernel "
                            "FILE.json",
                            name));
  }
  return fail(StatusCode::kInvalidArgument,
              std::format("invalid problem key \"{}\"; one looks like "
                          "compose/bf16,bf16,f32,bf16/v8/c4096/r12",
                          key));
}

void add_problem_options(CLI::App& app, ProblemOptions& options) {
  add_size_options(app, options.sizes);
  app.add_option("--shape", options.shapes,
                 "The sizes of a problem, as ROWSxCOLS; a size that it leaves out has an option of "
                 "its own; may be repeated")
      ->option_text("RxC")
      ->delimiter(',');
  app.add_option("--from", options.file, "Problems from a file, one a line as `show` names them")
      ->option_text("FILE");
  app.add_option("--op", options.variant.op, "The operation [compose]")
      ->option_text(joined(kernels::offered_operations(), "|", &kernels::Operation::name));
  add_variant_options(app, options.variant);
  add_own_kernel_options(app, options.own_kernel);
  app.parse_complete_callback([&app, &options] { require_sizes(app, options); });
}

void add_seconds_option(CLI::App& app, std::optional<double>& seconds) {
  app.add_option("--seconds", seconds, "Time to tune a problem at most [DORAJIT_TUNE_SECONDS, 2]")
      ->option_text("S")
      ->check(number_range(0, kMaxTuneSeconds));
}

bool names_problems(const ProblemOptions& options) {
  return names_any(options.sizes) || !options.shapes.empty() || !options.file.empty() ||
         !options.own_kernel.file.empty();
}

Status check_problem_options(const ProblemOptions& options, const std::string& command) {
  DORAJIT_TRY(named_problems(options, kernels::DeviceKind::kCuda, command));
  return {};
}

Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command) {
  // Before the file is read, which may have problems of the own kernel.
  DORAJIT_ASSIGN(const auto named, named_problems(options, kind, command));
  std::vector<launch::Problem> wanted;
  if (!options.file.empty()) {
    DORAJIT_ASSIGN(wanted, read_problems(options.file));
  }
  wanted.insert(wanted.end(), named.begin(), named.end());
  std::vector<launch::Problem> problems;
  for (launch::Problem& problem : wanted) {
    problem.vector_width =
        std::min(problem.vector_width, kernels::widest_vector(problem.variant, kind));
    if (!std::ranges::contains(problems, problem)) problems.push_back(problem);
  }
  return problems;
}

Result<std::set<std::string>> problem_keys(const ProblemOptions& options,
                                           const std::string& command) {
  std::set<std::string> keys;
  for (const auto kind : {kernels::DeviceKind::kCpu, kernels::DeviceKind::kCuda}) {
    DORAJIT_ASSIGN(const auto problems, make_problems(options, kind, command));
    for (const launch::Problem& problem : problems) keys.insert(to_text(problem));
  }
  return keys;
}

}  // namespace dorajit::cli
