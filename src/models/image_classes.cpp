#include "models/image_classes.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/class_names.hpp"
#include "lockstep/parallel/sharded_init.hpp"
#include "models/attention.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

bool begins_with_one(const std::string& name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

}  // namespace

void check_class_names(const std::vector<std::string>& id2label, std::int64_t num_labels) {
  if (std::ssize(id2label) == num_labels) return;
  throw UsageError(fmt::format("id2label has {} names, but the classifier has {} classes: expected as many",
                               id2label.size(), num_labels));
}

void add_class_names(nlohmann::ordered_json& fields, std::int64_t num_labels,
                     const std::vector<std::string>& id2label) {
  if (!id2label.empty()) check_class_names(id2label, num_labels);
  nlohmann::ordered_json names;
  std::map<std::string, std::int64_t> ids;
  std::int64_t label = 0;
  for (const auto& name : id2label.empty() ? placeholder_class_names(num_labels) : id2label) {
    names[std::to_string(label)] = name;
    ids[name] = label++;
  }
  fields["id2label"] = std::move(names);
  fields["label2id"] = ids;
}

void load_classifier_weights(ImageClassifierImpl& model, const std::filesystem::path& folder,
                             PretrainedNames names, const std::vector<std::string>& heads, bool is_new,
                             PretrainedReport* report) {
  WeightsDtype::apply(model);
  names.new_heads.insert(names.new_heads.end(), heads.begin(), heads.end());
  names.other_heads.insert(names.other_heads.end(), heads.begin(), heads.end());
  auto tensors = parallel::named_state_of(model);
  std::vector<std::string> new_names;
  if (is_new) {
    // A classifier of other classes is another head, even if its name and its shape are the same.
    const auto head = std::stable_partition(tensors.begin(), tensors.end(), [&](const NamedTensor& entry) {
      return !begins_with_one(entry.name, heads);
    });
    for (auto entry = head; entry != tensors.end(); ++entry) new_names.push_back(entry->name);
    tensors.erase(head, tensors.end());
  }
  auto found = load_pretrained(folder, tensors, names);
  found.initialized.insert(found.initialized.end(), new_names.begin(), new_names.end());
  model.set_renames(found.renames);
  if (report) *report = std::move(found);
}

void check_pixel_values(const char* model, const at::Tensor& pixel_values, std::int64_t channels,
                        std::int64_t height, std::int64_t width) {
  const bool fits = pixel_values.defined() && pixel_values.dim() == 4 && pixel_values.is_floating_point() &&
                    pixel_values.size(1) == channels && pixel_values.size(2) >= height &&
                    pixel_values.size(3) >= width;
  if (fits) return;
  throw UsageError(fmt::format(
      "{} takes images in floating point, [rows, {}, height, width] of at least {} x {} pixels; got {}",
      model, channels, height, width,
      pixel_values.defined() ? fmt::format("{} {}", pixel_values.toString(), c10::str(pixel_values.sizes()))
                             : "an undefined tensor"));
}

at::Tensor drop_path(const at::Tensor& branch, double probability, bool is_training) {
  if (probability == 0 || !is_training) return branch;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(branch.dim()), 1);
  sizes[0] = branch.size(0);
  const double kept = 1 - probability;
  return branch.div(kept) * at::rand(sizes, branch.options()).add(kept).floor();
}

void initialize_vision(torch::nn::Module& module, double spread) {
  initialize(module, spread);
  auto* conv = module.as<torch::nn::Conv2dImpl>();
  if (conv == nullptr) return;
  const at::NoGradGuard no_grad;
  parallel::set_initial_values(
      conv->weight, [&](const at::Tensor& weight) { torch::nn::init::normal_(weight, 0, spread); });
  if (conv->bias.defined())
    parallel::set_initial_values(conv->bias, [](const at::Tensor& bias) { bias.zero_(); });
}

}  // namespace lockstep::models
