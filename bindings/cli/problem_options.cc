#include "bindings/cli/problem_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <format>

#include "bindings/cli/shapes.h"

namespace dorajit::cli {
namespace {

Result<std::vector<Shape>> wanted_shapes(const ProblemOptions& options,
                                         const std::string& command) {
  std::vector<Shape> shapes;
  if (options.rows != 0 || options.cols != 0) {
    shapes.push_back({.rows = options.rows, .cols = options.cols});
    DORAJIT_TRY(check_shape(shapes.back()));
  }
  for (const std::string& text : options.shapes) {
    DORAJIT_ASSIGN(const Shape shape, parse_shape(text));
    shapes.push_back(shape);
  }
  if (shapes.empty()) {
    return fail(StatusCode::kInvalidArgument,
                std::format("{} needs a problem: --rows R --cols C, or --shape RxC", command));
  }
  return shapes;
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
  app.add_option("--op", options.variant.op, "The operation [compose]")->option_text("OP");
  add_variant_options(app, options.variant);
}

Result<std::vector<launch::Problem>> make_problems(const ProblemOptions& options,
                                                   kernels::DeviceKind kind,
                                                   const std::string& command) {
  DORAJIT_ASSIGN(const std::vector<Shape> shapes, wanted_shapes(options, command));
  DORAJIT_ASSIGN(const kernels::Variant variant, make_variant(options.variant));
  std::vector<launch::Problem> problems;
  for (const Shape& shape : shapes) {
    const launch::Problem problem = launch::make_problem(variant, kind, shape.rows, shape.cols);
    if (std::ranges::find(problems, problem) == problems.end()) problems.push_back(problem);
  }
  return problems;
}

}  // namespace dorajit::cli
