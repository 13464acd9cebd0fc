#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/models/image_classifier.hpp"
#include "models/load_weights.hpp"

namespace lockstep::models {

/// "id2label" and "label2id" of config.json for these class names, or placeholders if there are none. Throws
/// UsageError unless there are none or `num_labels` names.
void add_class_names(nlohmann::ordered_json& fields, std::int64_t num_labels,
                     const std::vector<std::string>& id2label);

/// Throws UsageError unless there are `num_labels` names.
void check_class_names(const std::vector<std::string>& id2label, std::int64_t num_labels);

/// What is asked of the classifier of a model that is loaded: see FromPretrainedOptions.
struct NewClasses {
  std::int64_t num_labels = 0;
  bool new_classifier = false;
};

/// Sets the number of classes of a configuration that was read, and whether its classifier is a new one: then
/// it has no names of classes.
template <class Config>
bool set_new_classes(Config& config, const NewClasses& classes) {
  const bool is_new =
      classes.new_classifier || (classes.num_labels != 0 && classes.num_labels != config.num_labels);
  if (is_new) {
    config.id2label.clear();
    config.problem_type.clear();
  }
  if (classes.num_labels != 0) config.num_labels = classes.num_labels;
  return is_new;
}

/// load_weights() of a classifier whose names begin with one of `heads`: new ones keep their values if the
/// files have none, and always if they are of other classes (`is_new`).
void load_classifier_weights(ImageClassifierImpl& model, const std::filesystem::path& folder,
                             PretrainedNames names, const std::vector<std::string>& heads, bool is_new,
                             PretrainedReport* report);

/// Throws UsageError, in the name of `model`, unless these are floating-point images [rows, channels, height,
/// width] of at least `height` x `width` pixels.
void check_pixel_values(const char* model, const at::Tensor& pixel_values, std::int64_t channels,
                        std::int64_t height, std::int64_t width);

/// Stochastic depth, in training: each row of `branch` becomes zero with this probability, the others grow.
at::Tensor drop_path(const at::Tensor& branch, double probability, bool is_training);

/// New values as in transformers: matrices and kernels are normal with deviation `spread`, biases zero.
void initialize_vision(torch::nn::Module& module, double spread);

}  // namespace lockstep::models
