#include "bindings/cli/problem_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <format>
#include <fstream>
#include <string_view>
#include <system_error>

#include "bindings/cli/shapes.h"
#include "kernel_templates/spaces.h"
#include "runtime/launch/size_limit.h"

namespace dorajit::cli {
namespace {

Result<std::vector<Shape>> wanted_shapes(const ProblemOptions& options) {
  std::vector<Shape> shapes;
  if (options.rows != 0 || options.cols != 0) {
    shapes.push_back({.rows = options.rows, .cols = options.cols});
    DORAJIT_TRY(check_shape(shapes.back()));
  }
  for (const std::string& text : options.shapes) {
    DORAJIT_ASSIGN(const Shape shape, parse_shape(text));
    shapes.push_back(shape);
  }
  return shapes;
}

// Without what other systems' editors put around a line.
std::string_view plain(std::string_view line, int number) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (number == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// One problem a line, as `dorajit show` names them; blank lines and lines that begin with # say
// nothing.
Result<std::vector<launch::Problem>> read_problems(const std::string& path) {
  std::ifstream file(path);
  int why = file ? 0 : errno;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) why = EISDIR;
  if (why != 0) {
    return fail(StatusCode::kIoError,
                std::format("{} cannot be read: {}; name a file of problems, one a line", path,
                            std::generic_category().message(why)));
  }
  std::vector<launch::Problem> problems;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::string_view line = plain(text, number);
    if (line.empty() || line.starts_with('#')) continue;
    const auto problem = launch::parse_problem(line);
    if (!problem || !std::has_single_bit(static_cast<unsigned>(problem->vector_width))) {
      return fail(StatusCode::kInvalidArgument,
                  std::format("{}:{}: \"{}\" is no problem; one looks like "
                              "compose/bf16,bf16,f32,bf16/v8/c4096/r12",
                              path, number, line));
    }
    problems.push_back(*problem);
  }
  if (file.bad() || problems.empty()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{} {}", path, file.bad() ? "cannot be read" : "names no problem"));
  }
  return problems;
}

}  // namespace

void add_problem_options(CLI::App& app, ProblemOptions& options) {
  CLI::Option* rows =
      app.add_option("--rows", options.rows, "Rows (tokens) of a problem")->option_text("R");
  CLI::Option* cols = app.add_option("--cols", options.cols, "Columns (out features) of a problem")
                          ->option_text("C");
  rows->needs(cols);
  cols->needs(rows);
  app.add_option("--shape", options.shapes, "A problem as ROWSxCOLS; may be repeated")
      ->option_text("RxC")
      ->delimiter(',');
  app.add_option("--from", options.file, "Problems from a file, one a line as `show` names them")
      ->option_text("FILE");
  add_op_option(app, options.variant);
  add_variant_options(app, options.variant);
}

Status check_problem_options(const ProblemOptions& options, const std::string& command) {
  DORAJIT_ASSIGN(const std::vector<Shape> shapes, wanted_shapes(options));
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  for (const Shape& shape : shapes) {
    DORAJIT_TRY(launch::check_size(variant, {shape.rows, shape.cols}));
  }
  if (!shapes.empty() || !options.file.empty()) return {};
  return fail(
      StatusCode::kInvalidArgument,
      std::format("{} needs a problem: --rows R --cols C, --shape RxC or --from FILE", command));
}

Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command) {
  DORAJIT_TRY(check_problem_options(options, command));
  DORAJIT_ASSIGN(const std::vector<Shape> shapes, wanted_shapes(options));
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  std::vector<launch::Problem> wanted;
  if (!options.file.empty()) {
    DORAJIT_ASSIGN(wanted, read_problems(options.file));
  }
  for (const Shape& shape : shapes) {
    wanted.push_back(launch::make_problem(variant, kind, {shape.rows, shape.cols}));
  }
  std::vector<launch::Problem> problems;
  for (launch::Problem& problem : wanted) {
    problem.vector_width =
        std::min(problem.vector_width, kernels::widest_vector(problem.variant, kind));
    if (std::ranges::find(problems, problem) == problems.end()) problems.push_back(problem);
  }
  return problems;
}

}  // namespace dorajit::cli
