#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Gives each image scores for its classes. AutoModelForImageClassification creates one of any family.
class ImageClassifierImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, num_labels] for `pixel_values`, floating point [rows, num_channels, height, width], as
  /// ImageProcessorConfig prepares them. Images may have another size than those that the model was made for:
  /// transformers interpolate their positions, as Python's classes do with interpolate_pos_encoding=True.
  /// Throws UsageError for other shapes.
  virtual at::Tensor forward(const at::Tensor& pixel_values) = 0;

  /// The channels of an image.
  virtual std::int64_t num_channels() const = 0;

  /// Sets the names of the classes by number, for save_pretrained. *Local*. Throws UsageError unless there
  /// are num_labels names.
  virtual void set_id2label(std::vector<std::string> names) = 0;
};
TORCH_MODULE(ImageClassifier);

}  // namespace lockstep::models
