#include "apps/cli/options/problem_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <format>
#include <string_view>

#include "apps/cli/terminal/number_range.h"
#include "apps/cli/terminal/text_format.h"
#include "cache/files/text_lines.h"
#include "kernel_templates/spaces.h"
#include "runtime/base/regular_file.h"
#include "runtime/base/settings.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::cli {
namespace {

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
    const std::string_view line = plain(cache::cut_line(rest), number);
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
  if (!options.own_kernel.file.empty()) {
    if (names_any(options.sizes) || !options.shapes.empty()) {
      return fail(StatusCode::kInvalidArgument,
                  "the sizes of a problem of --kernel are given by --with NAME=SIZE,...");
    }
    DORAJIT_TRY(own_kernel_problems(options.own_kernel, options.variant, options.file.empty()));
    return {};
  }
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  DORAJIT_ASSIGN(const std::vector<kernels::Sizes> wanted,
                 wanted_sizes(options, *variant.operation));
  for (const kernels::Sizes& sizes : wanted) DORAJIT_TRY(launch::check_size(variant, sizes));
  if (names_problems(options)) return {};
  return fail(StatusCode::kInvalidArgument,
              std::format("{} needs a problem: --shape RxC, {} or --from FILE", command,
                          size_options_text(*variant.operation)));
}

Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command) {
  DORAJIT_TRY(check_problem_options(options, command));
  std::vector<launch::Problem> wanted;
  if (!options.file.empty()) {
    DORAJIT_ASSIGN(wanted, read_problems(options.file));
  }
  if (!options.own_kernel.file.empty()) {
    DORAJIT_ASSIGN(const auto own,
                   own_kernel_problems(options.own_kernel, options.variant, options.file.empty()));
    wanted.insert(wanted.end(), own.begin(), own.end());
  } else {
    DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
    DORAJIT_ASSIGN(const auto all, wanted_sizes(options, *variant.operation));
    for (const kernels::Sizes& sizes : all) {
      wanted.push_back(launch::make_problem(variant, kind, sizes));
    }
  }
  std::vector<launch::Problem> problems;
  for (launch::Problem& problem : wanted) {
    problem.vector_width =
        std::min(problem.vector_width, kernels::widest_vector(problem.variant, kind));
    if (std::ranges::find(problems, problem) == problems.end()) problems.push_back(problem);
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
