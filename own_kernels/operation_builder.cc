#include <algorithm>
#include <format>
#include <utility>

#include "kernel_templates/embedded_sources.h"
#include "own_kernels/own_operation.h"
#include "runtime/base/hash.h"

namespace dorajit::own_kernels {
namespace {

using kernels::Config;

// Turns a description into an operation, part by part, each of which may refuse it.
class OperationBuilder {
 public:
  explicit OperationBuilder(Description description) : own_(std::make_unique<OwnOperation>()) {
    own_->given = std::move(description);
  }

  Result<std::unique_ptr<OwnOperation>> build() {
    if (std::ranges::none_of(description().arguments, [](const Argument& argument) {
          return argument.kind == Argument::Kind::kOut || argument.kind == Argument::Kind::kInOut;
        })) {
      return refuse_description("no argument is \"out\" or \"inout\", so that nothing is computed");
    }
    DORAJIT_TRY(check_names());
    DORAJIT_TRY(check_program(own_->given));
    DORAJIT_TRY(find_dimensions());
    DORAJIT_TRY(read_key());
    DORAJIT_TRY(read_computed_sizes(*own_));
    DORAJIT_TRY(make_operands());
    DORAJIT_TRY(read_value_limits(*own_));
    DORAJIT_TRY(read_expressions(*own_));
    DORAJIT_TRY(read_tensor_maps(*own_));
    DORAJIT_TRY(list_space(*own_));
    finish();
    return std::move(own_);
  }

 private:
  [[nodiscard]] const Description& description() const { return own_->given; }

  Status add_name(std::string_view what, const std::string& name) {
    if (!is_name(name) || name.size() > kernels::Mark::kMaxCharacters) {
      return refuse_description(
          std::format("{} is called \"{}\"; a name has letters, digits and _, begins "
                      "with no digit, has at most {} characters and is no word of "
                      "expressions",
                      what, name.substr(0, 100), kernels::Mark::kMaxCharacters));
    }
    if (name == kProcessors) {
      return refuse_description(std::format(
          "{} is called `{}`, which is the number of the device's multiprocessors", what, name));
    }
    if (std::ranges::contains(taken_, name)) {
      return refuse_description(std::format("{} is called `{}`, as something else is", what, name));
    }
    taken_.push_back(name);
    return {};
  }

  Status check_names() {
    constexpr std::size_t kLongestName = 64;
    if (!is_name(description().name) || description().name.size() > kLongestName) {
      return refuse_description(
          std::format("\"name\" is \"{}\"; it has letters, digits and _, begins with no "
                      "digit and has at most {} characters",
                      description().name.substr(0, 100), kLongestName));
    }
    for (const Argument& argument : description().arguments) {
      DORAJIT_TRY(add_name("an argument", argument.name));
    }
    for (const TypeChoice& choice : description().types) {
      DORAJIT_TRY(add_name("a type", choice.name));
      if (parse_type_name(choice.name)) {
        return refuse_description(
            std::format("\"types\" has `{}`, which is a type already", choice.name));
      }
    }
    for (const Parameter& parameter : description().parameters) {
      DORAJIT_TRY(add_name("a parameter", parameter.name));
      if (kernels::Mark(parameter.name).is_letter()) {
        return refuse_description(
            std::format("a parameter is called `{}`; names of one small letter are those "
                        "of the library's own configs, so write `{}`",
                        parameter.name, static_cast<char>(parameter.name.front() - 'a' + 'A')));
      }
    }
    return {};
  }

  int index_of(const std::string& dimension) {
    const auto found = std::ranges::find(own_->names, dimension);
    return found == own_->names.end() ? -1 : static_cast<int>(found - own_->names.begin());
  }

  // Integer scalars and the dimensions of tensors, in the order in which they appear.
  Status find_dimensions() {
    own_->names.reserve(kernels::kMaxSizes + Config::kMaxTunables + 1);
    int scalar = 0;
    for (const Argument& argument : description().arguments) {
      if (argument.is_workspace() || argument.is_tensor_map()) continue;
      if (argument.is_tensor()) {
        for (const std::string& dimension : argument.shape) {
          DORAJIT_TRY(add_dimension(argument, dimension, "dimension"));
        }
        DORAJIT_TRY(check_strides(argument));
        for (const std::string& stride : argument.strides) {
          if (!stride.empty()) DORAJIT_TRY(add_dimension(argument, stride, "stride"));
        }
        continue;
      }
      if (argument.is_size()) {
        if (index_of(argument.name) < 0) own_->names.push_back(argument.name);
        scalars_of_.emplace_back(argument.name, scalar);
      }
      ++scalar;
    }
    if (own_->names.size() > kernels::kMaxSizes) {
      return refuse_description(
          std::format("there are {} integers and dimensions; at most {} are served",
                      own_->names.size(), kernels::kMaxSizes));
    }
    return {};
  }

  Status add_dimension(const Argument& argument, const std::string& dimension,
                       std::string_view what) {
    const bool is_integer = std::ranges::any_of(description().arguments, [&](const Argument& one) {
      return one.is_size() && one.name == dimension;
    });
    if (index_of(dimension) >= 0) return {};
    if (!is_integer && !constant_of(dimension) && !is_computed_size(dimension)) {
      DORAJIT_TRY(add_name(std::format("a {} of `{}`", what, argument.name), dimension));
    }
    own_->names.push_back(dimension);
    return {};
  }

  Status read_key() {
    std::vector<std::string> missing;
    for (const std::string& name : own_->names) {
      const auto constant = constant_of(name);
      const kernels::Keying keying = constant                         ? kernels::Keying::kConstant
                                     : is_computed_size(name)         ? kernels::Keying::kComputed
                                     : is_stride(description(), name) ? kernels::Keying::kStride
                                                                      : kernels::Keying::kExact;
      const bool is_keyed = keying == kernels::Keying::kExact;
      own_->all_dimensions.push_back({.name = name,
                                      .keying = keying,
                                      .mark = is_keyed ? kernels::Mark(name) : kernels::Mark(),
                                      .most = constant.value_or(0)});
      if (is_keyed) missing.push_back(name);
    }
    for (const auto& [name, scalar] : scalars_of_) {
      kernels::Dimension& given = own_->all_dimensions[static_cast<std::size_t>(index_of(name))];
      given.scalar = scalar;
      const auto argument = std::ranges::find(description().arguments, name, &Argument::name);
      const double most = range_of(*argument->integer()).second;
      if (most < 0x1p53 - 1) given.most = static_cast<std::int64_t>(most);
    }
    if (!description().key) return {};
    for (const auto& [name, is_bucketed] : *description().key) {
      const int index = index_of(name);
      if (index < 0) {
        const bool is_type = std::ranges::contains(description().types, name, &TypeChoice::name);
        if (is_type && !is_bucketed) continue;
        return refuse_description(std::format(
            "\"key\" has `{}`, which is {}", name,
            is_type ? "a type and has no bucket" : "no type, no integer and no dimension"));
      }
      std::erase(missing, name);
      kernels::Dimension& keyed = own_->all_dimensions[static_cast<std::size_t>(index)];
      if (keyed.keying > kernels::Keying::kBucketed) {
        return refuse_description(std::format(
            "\"key\" has `{}`, which is {}", name,
            keyed.keying == kernels::Keying::kStride
                ? "a stride, whatever its value a config is chosen for; let the constraint read it"
                : "no name"));
      }
      if (is_bucketed) keyed.keying = kernels::Keying::kBucketed;
    }
    if (missing.empty()) return {};
    return refuse_description(
        std::format("\"key\" lacks `{0}`, so that nobody knows which to tune for; add "
                    "\"{0}\", or \"bucket({0})\" where sizes up to the next power of two "
                    "may share a config",
                    missing.front()));
  }

  Status make_operands() {
    std::vector<const Argument*> tensors;
    for (const Argument& argument : description().arguments) {
      if (argument.is_tensor()) tensors.push_back(&argument);
    }
    const auto scalars = static_cast<std::size_t>(
        std::ranges::count_if(description().arguments, &Argument::is_scalar));
    if (tensors.size() > kernels::kMaxOperands || scalars > kernels::kMaxCallScalars) {
      return refuse_description(
          std::format("there are {} tensors and {} scalars; at most {} and {} are served",
                      tensors.size(), scalars, kernels::kMaxOperands, kernels::kMaxCallScalars));
    }
    own_->leading.reserve(tensors.size());
    own_->strides.reserve(tensors.size());
    own_->shape_texts.reserve(tensors.size());
    for (const Argument* tensor : tensors) {
      DORAJIT_TRY(check_presence(*tensor, tensors));
      DORAJIT_TRY(make_operand(*tensor));
    }
    std::size_t operand = 0;
    std::size_t tensor_map = 0;
    for (const Argument& argument : description().arguments) {
      using From = OwnOperation::Source::Kind;
      if (argument.is_tensor()) {
        own_->sources_of_parameters.push_back({.kind = From::kOperand, .index = operand++});
        continue;
      }
      if (argument.is_workspace()) {
        DORAJIT_TRY(read_workspace(*own_, argument));
        own_->sources_of_parameters.push_back({.kind = From::kWorkspace, .index = 0});
        continue;
      }
      if (argument.is_tensor_map()) {
        own_->sources_of_parameters.push_back({.kind = From::kTensorMap, .index = tensor_map++});
        continue;
      }
      const kernels::IntegerType* const integer = argument.integer();
      const auto [least, most] =
          integer != nullptr ? range_of(*integer) : std::pair<double, double>();
      own_->sources_of_parameters.push_back(
          {.kind = argument.is_size() ? From::kSize : From::kScalar,
           .index = argument.is_size() ? static_cast<std::size_t>(index_of(argument.name))
                                       : own_->all_scalars.size(),
           .type = *parse_type_name(argument.type)});
      // A size has limits of its own.
      own_->values_of_scalars.push_back({.least = least,
                                         .most = most,
                                         .is_integer = integer != nullptr && !argument.is_size(),
                                         .tuned = argument.tuned.value_or(0.5)});
      own_->all_scalars.push_back(argument.name);
    }
    for (const std::string& name : description().unaligned) {
      if (std::ranges::contains(own_->all_operands, name, &kernels::Operand::name)) continue;
      return refuse_field("unaligned",
                          std::format("has `{}`, which is no tensor", name.substr(0, 100)));
    }
    for (const TypeChoice& choice : description().types) {
      if (std::ranges::none_of(
              tensors, [&](const Argument* tensor) { return tensor->type == choice.name; })) {
        return refuse_description(
            std::format("\"types\" has `{}`, which no tensor has", choice.name));
      }
    }
    return {};
  }

  // Whether a call without the tensor has a device and all sizes.
  Status check_presence(const Argument& tensor, const std::vector<const Argument*>& tensors) {
    if (!tensor.is_optional) return {};
    if (&tensor == tensors.front()) {
      return refuse_description(std::format(
          "`{}` is optional; the first tensor says where a call runs, so put another one first",
          tensor.name));
    }
    for (const std::string& dimension : tensor.shape) {
      const bool is_known =
          constant_of(dimension) || is_computed_size(dimension) ||
          std::ranges::contains(scalars_of_, dimension, &std::pair<std::string, int>::first) ||
          std::ranges::any_of(tensors, [&](const Argument* other) {
            return !other->is_optional && std::ranges::contains(other->shape, dimension);
          });
      if (is_known) continue;
      return refuse_description(
          std::format("the dimension `{}` is that of `{}` alone, which a call may leave out; give "
                      "it as an integer, too",
                      dimension, tensor.name));
    }
    return {};
  }

  Status make_operand(const Argument& tensor) {
    const auto choice = std::ranges::find(description().types, tensor.type, &TypeChoice::name);
    const auto fixed = parse_type_name(tensor.type);
    if (choice == description().types.end() && !fixed) {
      return refuse_description(
          std::format("argument `{}` has elements of \"{}\", which is no name of "
                      "\"types\" and none of {}",
                      tensor.name, tensor.type.substr(0, 100), type_names()));
    }
    std::vector<int>& dimensions = own_->leading.emplace_back();
    std::vector<int>& strides = own_->strides.emplace_back();
    for (const std::string& name : tensor.shape) dimensions.push_back(index_of(name));
    if (!tensor.strides.front().empty()) {
      for (const std::string& name : tensor.strides) strides.push_back(index_of(name));
    }
    const int inner = dimensions.back();
    dimensions.pop_back();
    own_->shape_texts.push_back(shape_text(tensor));
    const bool is_unaligned = std::ranges::contains(description().unaligned, tensor.name);
    own_->refusals.push_back(describe_types(tensor, choice));
    serve_types(tensor.type, choice != description().types.end()
                                 ? choice->types
                                 : std::vector<kernels::ElementType>{*fixed});
    constexpr std::size_t kAlignment = 16;
    own_->all_operands.push_back({.name = tensor.name,
                                  .role = tensor.kind == Argument::Kind::kIn
                                              ? kernels::OperandRole::kInput
                                              : kernels::OperandRole::kOutput,
                                  .shape = {.text = own_->shape_texts.back(),
                                            .inner = inner,
                                            .leading = dimensions,
                                            .is_exact = true,
                                            .strides = strides},
                                  .presence = tensor.is_optional ? kernels::Presence::kOptional
                                                                 : kernels::Presence::kRequired,
                                  .samples = kernels::Samples::kAroundZero,
                                  .limits_vectors = false,
                                  .is_read = tensor.kind == Argument::Kind::kInOut,
                                  .alignment = is_unaligned ? 0 : kAlignment,
                                  .is_unaligned = is_unaligned});
    return {};
  }

  void serve_types(const std::string& type, const std::vector<kernels::ElementType>& served) {
    unsigned types = 0;
    for (const kernels::ElementType one : served) types |= 1U << static_cast<unsigned>(one);
    const auto first = std::ranges::find(types_of_tensors_, type);
    own_->served_types.push_back(
        {.types = types, .same_as = static_cast<std::size_t>(first - types_of_tensors_.begin())});
    types_of_tensors_.push_back(type);
  }

  std::string describe_types(const Argument& tensor,
                             std::vector<TypeChoice>::const_iterator choice) {
    if (choice == description().types.end()) {
      return std::format("argument `{}` takes elements of {}", tensor.name, tensor.type);
    }
    std::string text = std::format("argument `{}` takes elements of {}, which is one of",
                                   tensor.name, choice->name);
    for (const kernels::ElementType type : choice->types) {
      text += std::format("{} {}", type == choice->types.front() ? "" : ",", type_name(type));
    }
    return text + ", the same for every argument of it";
  }

  void finish() {
    OwnOperation& own = *own_;
    own.json = to_json(own.given);
    Hasher hasher("own kernel/1");
    hasher.add("description", own.json)
        .add("types", kernels::find_embedded("cuda/own_types.cuh")->sha256);
    if (has_float8(own.given)) {
      hasher.add("float8", kernels::find_embedded(kEmbeddedFloat8)->sha256);
    }
    own.hash = hasher.digest();
    constexpr std::size_t kVersionDigits = 12;
    own.name = own.given.name;
    own.scalars = own.all_scalars;
    own.scalar_values = own.values_of_scalars;
    own.version = std::string_view(own.hash).substr(0, kVersionDigits);
    for (const std::string_view one : own.scalars) own.scalar_names.push_back(one.data());
    own.documentation = "a kernel of the user's own";
    own.dimensions = own.all_dimensions;
    own.operands = own.all_operands;
    own.reference = nullptr;
    own.is_offered = false;
    own.tolerance = own.given.tolerance;
    own.mixes_all_types = true;
    own.sources = own.hash;
    own.description = own.json;
    for (const IncludedFile& file : own.given.included) {
      own.all_attachments.push_back({.key = file.hash, .text = file.text});
    }
    own.attachments = own.all_attachments;
  }

  std::unique_ptr<OwnOperation> own_;
  std::vector<std::string> taken_;
  std::vector<std::string> types_of_tensors_;
  std::vector<std::pair<std::string, int>> scalars_of_;  // integers, and which scalar each is
};

}  // namespace

Result<std::unique_ptr<OwnOperation>> build_operation(Description description) {
  return OperationBuilder(std::move(description)).build();
}

}  // namespace dorajit::own_kernels
