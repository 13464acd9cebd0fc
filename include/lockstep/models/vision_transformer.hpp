#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/image_transforms.hpp"
#include "lockstep/models/image_classifier.hpp"

namespace lockstep::models {

/// Configuration of a vision transformer: ViT ("vit"), DeiT ("deit") or DINOv2 ("dinov2"), with the field
/// names of Hugging Face's config.json. The defaults are ViT's; of() has those of a family.
struct VisionTransformerConfig {
  std::string model_type = "vit";
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  /// Must divide hidden_size.
  std::int64_t num_attention_heads = 12;
  /// Not of DINOv2, whose feed-forward layers have mlp_ratio times hidden_size.
  std::int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  /// The images that the model was made for; each patch of patch_size pixels is a token.
  ImageSize image_size = {224, 224};
  ImageSize patch_size = {16, 16};
  std::int64_t num_channels = 3;
  bool qkv_bias = true;

  /// Of DeiT: the mean of two classifiers, of the class token and of the distillation token
  /// (DeiTForImageClassificationWithTeacher). Otherwise the distillation token has no classifier.
  bool with_teacher = false;

  /// Of DINOv2.
  double mlp_ratio = 4;
  /// First value of the factors of each layer's branches.
  double layerscale_value = 1;
  /// Probability with which a branch is left out for a sample, in training.
  double drop_path_rate = 0;
  /// Gated feed-forward layers.
  bool use_swiglu_ffn = false;
  /// The file has an embedding of masked patches, which pre-training uses.
  bool use_mask_token = true;

  std::int64_t num_labels = 2;
  /// See BertConfig.
  std::vector<std::string> id2label = {};
  std::string problem_type = {};
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// The defaults of a family. Throws UsageError for others.
  static VisionTransformerConfig of(const std::string& model_type);
  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model or if a field is out of range.
  static VisionTransformerConfig from_file(const std::filesystem::path& path);
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class VisionBodyImpl;

/// A vision transformer with a linear layer on its class token (DINOv2: also on the mean of the patches), as
/// Hugging Face's ViTForImageClassification, DeiTForImageClassification(WithTeacher) and
/// Dinov2ForImageClassification, with the names of published files. The layers are units of fully_shard().
class VisionTransformerForImageClassificationImpl
    : public FamilyModel<ImageClassifierImpl, VisionTransformerConfig> {
 public:
  /// New weights, initialized as in Python's class. Throws UsageError if the sizes do not fit each other, or
  /// if `config` does not name as many classes as it has.
  explicit VisionTransformerForImageClassificationImpl(const VisionTransformerConfig& config = {});

  at::Tensor forward(const at::Tensor& pixel_values) override;
  /// The normalized states [rows, tokens, width]: the class token, DeiT's distillation token, the patches.
  at::Tensor states(const at::Tensor& pixel_values);

  std::int64_t num_channels() const override { return config_.num_channels; }
  void set_id2label(std::vector<std::string> names) override;

 private:
  std::shared_ptr<VisionBodyImpl> body_;
  torch::nn::Linear classifier_{nullptr}, distillation_classifier_{nullptr};
};
TORCH_MODULE(VisionTransformerForImageClassification);

/// Reads a folder with config.json and weights, as written by Hugging Face's save_pretrained or by
/// save_pretrained(). The file may be of a model with another head or without one. `num_labels` and
/// `new_classifier`: see FromPretrainedOptions. *Local*. Throws DataError. For any family:
/// AutoModelForImageClassification.
VisionTransformerForImageClassification load_vision_transformer(const std::filesystem::path& folder,
                                                                std::int64_t num_labels = 0,
                                                                PretrainedReport* report = nullptr,
                                                                bool new_classifier = false);

}  // namespace lockstep::models
