#include "lockstep/models/vision_transformer.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "models/class_labels.hpp"
#include "models/load_weights.hpp"
#include "models/vision_functions.hpp"
#include "models/vision_layers.hpp"

namespace lockstep::models {
namespace {

void check_vision_sizes(const VisionTransformerConfig& config) {
  VisionTransformerConfig::of(config.model_type);
  if (config.num_attention_heads < 1 || config.hidden_size % config.num_attention_heads != 0) {
    throw UsageError(fmt::format(
        "a vision transformer's hidden_size ({}) must be a multiple of its num_attention_heads ({})",
        config.hidden_size, config.num_attention_heads));
  }
  const auto& [image, patch] = std::pair(config.image_size, config.patch_size);
  if (patch.height > 0 && patch.width > 0 && image.height >= patch.height && image.width >= patch.width)
    return;
  throw UsageError(
      fmt::format("a vision transformer's image_size ({} x {}) must be at least its patch_size ({} x {})",
                  image.height, image.width, patch.height, patch.width));
}

PretrainedNames vision_names(const std::string& model_type) {
  return {.base_prefix = model_type + ".",
          // Of the other tasks: a pooler, a decoder of masked patches, and their embedding.
          .other_heads = {"pooler.", model_type + ".pooler.", "decoder.", "classifier.", "cls_classifier.",
                          "distillation_classifier."},
          .constants = model_type == "dinov2" ? std::vector<std::string>{}
                                              : std::vector<std::string>{"embeddings.mask_token"},
          .sizes = {{"embeddings.",
                     "patch_embeddings.projection.weight",
                     {"hidden_size", "num_channels", "patch_size", "patch_size"}},
                    {"embeddings.", "position_embeddings", {"", "image_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.weight", {"intermediate_size", "hidden_size"}},
                    {"encoder.", ".intermediate.dense.bias", {"intermediate_size"}},
                    {"encoder.", ".attention.output.dense.weight", {"hidden_size", "hidden_size"}},
                    {"encoder.", ".output.dense.weight", {"hidden_size", "intermediate_size"}},
                    {"encoder.", ".mlp.fc1.weight", {"mlp_ratio", "hidden_size"}},
                    {"encoder.", ".mlp.fc2.weight", {"hidden_size", "mlp_ratio"}},
                    {"classifier.", "", {"id2label", "hidden_size"}},
                    {"", "", {"hidden_size", "hidden_size"}}},
          .layers = {{"encoder.layer.", "num_hidden_layers"}}};
}

}  // namespace

VisionTransformerForImageClassificationImpl::VisionTransformerForImageClassificationImpl(
    const VisionTransformerConfig& config)
    : FamilyModel(config) {
  check_vision_sizes(config);
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  body_ = register_module(config.model_type, std::make_shared<VisionBodyImpl>(config));
  const std::int64_t width = config.model_type == "dinov2" ? 2 * config.hidden_size : config.hidden_size;
  classifier_ = register_module(config.with_teacher ? "cls_classifier" : "classifier",
                                torch::nn::Linear(width, config.num_labels));
  if (config.with_teacher) {
    distillation_classifier_ =
        register_module("distillation_classifier", torch::nn::Linear(width, config.num_labels));
  }
  apply([&](torch::nn::Module& module) { initialize_vision(module, config_.initializer_range); });
}

at::Tensor VisionTransformerForImageClassificationImpl::states(const at::Tensor& pixel_values) {
  return body_->forward(pixel_values);
}

at::Tensor VisionTransformerForImageClassificationImpl::forward(const at::Tensor& pixel_values) {
  const at::Tensor tokens = states(pixel_values);
  const at::Tensor first = tokens.select(1, 0);
  if (config_.model_type == "dinov2") {
    const at::Tensor patches = tokens.narrow(1, 1, tokens.size(1) - 1).mean(1);
    return classifier_(at::cat({first, patches}, 1));
  }
  if (!config_.with_teacher) return classifier_(first);
  return (classifier_(first) + distillation_classifier_(tokens.select(1, 1))) / 2;
}

void VisionTransformerForImageClassificationImpl::set_id2label(std::vector<std::string> names) {
  check_class_names(names, config_.num_labels);
  config_.id2label = std::move(names);
}

VisionTransformerForImageClassification load_vision_transformer(const std::filesystem::path& folder,
                                                                std::int64_t num_labels,
                                                                PretrainedReport* report,
                                                                bool new_classifier) {
  auto config = VisionTransformerConfig::from_file(folder);
  const bool is_new = set_new_classes(config, {.num_labels = num_labels, .new_classifier = new_classifier});
  VisionTransformerForImageClassification model(config);
  const auto heads = config.with_teacher
                         ? std::vector<std::string>{"cls_classifier.", "distillation_classifier."}
                         : std::vector<std::string>{"classifier."};
  auto names = vision_names(config.model_type);
  names.other_heads.insert(names.other_heads.end(), heads.begin(), heads.end());
  load_weights_with_head(*model, folder, names, heads, is_new, report);
  return model;
}

}  // namespace lockstep::models
