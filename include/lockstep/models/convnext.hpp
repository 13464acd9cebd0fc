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

/// Configuration of a ConvNeXt, with the field names and defaults of Hugging Face's config.json
/// (convnext-tiny).
struct ConvNextConfig {
  std::int64_t num_channels = 3;
  /// Kernel and stride of the first convolution.
  ImageSize patch_size = {4, 4};
  /// Width and number of layers of each stage.
  std::vector<std::int64_t> hidden_sizes = {96, 192, 384, 768};
  std::vector<std::int64_t> depths = {3, 3, 9, 3};
  std::string hidden_act = "gelu";
  double initializer_range = 0.02;
  /// Of the last norm; that of the others is 1e-6.
  double layer_norm_eps = 1e-12;
  /// First value of the factors of each layer's branch; 0: no factors.
  double layer_scale_init_value = 1e-6;
  /// Probability with which the last layer's branch is left out for a sample, in training. It grows from 0
  /// with the layers.
  double drop_path_rate = 0;

  std::int64_t num_labels = 2;
  /// See BertConfig.
  std::vector<std::string> id2label = {};
  std::string problem_type = {};
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model or if a field is out of range.
  static ConvNextConfig from_file(const std::filesystem::path& path);
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class ConvNextBodyImpl;

/// ConvNeXt (Liu et al., 2022) with a linear layer on the mean of the last stage's pixels, as Hugging Face's
/// ConvNextForImageClassification, with its names. Images may have any size. The layers are units of
/// fully_shard().
class ConvNextForImageClassificationImpl : public FamilyModel<ImageClassifierImpl, ConvNextConfig> {
 public:
  /// New weights, initialized as in Python's class. Throws UsageError if the sizes do not fit each other, or
  /// if `config` does not name as many classes as it has.
  explicit ConvNextForImageClassificationImpl(const ConvNextConfig& config = {});

  at::Tensor forward(const at::Tensor& pixel_values) override;

  std::int64_t num_channels() const override { return config_.num_channels; }
  void set_id2label(std::vector<std::string> names) override;

 private:
  std::shared_ptr<ConvNextBodyImpl> body_;
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(ConvNextForImageClassification);

/// As load_vision_transformer().
ConvNextForImageClassification load_convnext(const std::filesystem::path& folder, std::int64_t num_labels = 0,
                                             PretrainedReport* report = nullptr, bool new_classifier = false);

}  // namespace lockstep::models
