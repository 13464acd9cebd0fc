#include "lockstep/models/convnext.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/class_labels.hpp"
#include "models/load_weights.hpp"
#include "models/vision_functions.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::LayerNorm;

/// Of all norms but the last.
constexpr double kInnerEpsilon = 1e-6;

LayerNorm channel_norm(std::int64_t channels, double epsilon = kInnerEpsilon) {
  return LayerNorm(torch::nn::LayerNormOptions({channels}).eps(epsilon));
}

/// The norm of each pixel's channels in [rows, channels, height, width].
at::Tensor normalize_pixels(LayerNorm norm, const at::Tensor& features) {
  return norm(features.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

class ConvNextLayerImpl : public torch::nn::Module, public Unit {
 public:
  ConvNextLayerImpl(const ConvNextConfig& config, std::int64_t channels, double drop_path_rate)
      : activation_(config.hidden_act), drop_path_rate_(drop_path_rate) {
    depthwise_ =
        register_module("dwconv", Conv2d(Conv2dOptions(channels, channels, 7).padding(3).groups(channels)));
    norm_ = register_module("layernorm", channel_norm(channels));
    in_ = register_module("pwconv1", Linear(channels, 4 * channels));
    out_ = register_module("pwconv2", Linear(4 * channels, channels));
    if (config.layer_scale_init_value > 0) {
      factors_ =
          register_parameter("layer_scale_parameter", torch::full({channels}, config.layer_scale_init_value));
    }
  }

  at::Tensor forward(const at::Tensor& features) {
    return through(*this, &ConvNextLayerImpl::body, features);
  }

 private:
  at::Tensor body(const at::Tensor& features) {
    const at::Tensor pixels = norm_(depthwise_(features).permute({0, 2, 3, 1}));
    at::Tensor branch = out_(in_->activated(pixels, activation_));
    if (factors_.defined()) branch = factors_ * branch;
    return features + drop_path(branch.permute({0, 3, 1, 2}), drop_path_rate_, is_training());
  }

  std::string activation_;
  double drop_path_rate_;
  Conv2d depthwise_{nullptr};
  LayerNorm norm_{nullptr};
  Linear in_{nullptr}, out_{nullptr};
  at::Tensor factors_;
};
TORCH_MODULE(ConvNextLayer);

class ConvNextStageImpl : public torch::nn::Module {
 public:
  /// `rates`: one for each layer.
  ConvNextStageImpl(const ConvNextConfig& config, std::int64_t from, std::int64_t to, std::int64_t stride,
                    const std::vector<double>& rates) {
    const auto downsampling = register_module("downsampling_layer", torch::nn::ModuleList());
    if (from != to || stride > 1) {
      norm_ = channel_norm(from);
      conv_ = Conv2d(Conv2dOptions(from, to, 2).stride(stride));
      downsampling->push_back(norm_);
      downsampling->push_back(conv_);
    }
    layers_ = register_module("layers", torch::nn::ModuleList());
    for (const double rate : rates) layers_->push_back(made_in_dtype(ConvNextLayer(config, to, rate)));
  }

  at::Tensor forward(at::Tensor features) {
    if (!conv_.is_empty()) features = conv_(normalize_pixels(norm_, features));
    for (const auto& layer : *layers_) features = layer->as<ConvNextLayerImpl>()->forward(features);
    return features;
  }

 private:
  LayerNorm norm_{nullptr};
  Conv2d conv_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
};
TORCH_MODULE(ConvNextStage);

/// The drop path rates of all layers: from 0 to that of the configuration, in float32 as in Python.
std::vector<double> drop_path_rates(const ConvNextConfig& config) {
  const auto layers = std::accumulate(config.depths.begin(), config.depths.end(), std::int64_t{0});
  const at::Tensor rates = at::linspace(0, config.drop_path_rate, layers, at::kFloat);
  std::vector<double> values;
  for (std::int64_t i = 0; i < layers; ++i) values.push_back(rates[i].item<float>());
  return values;
}

void check_convnext(const ConvNextConfig& config) {
  const auto fit = [](const std::vector<std::int64_t>& values) {
    return std::all_of(values.begin(), values.end(), [](auto value) { return value > 0; });
  };
  const bool is_right = !config.depths.empty() && config.depths.size() == config.hidden_sizes.size() &&
                        fit(config.depths) && fit(config.hidden_sizes) && config.patch_size.height > 0 &&
                        config.patch_size.width > 0;
  if (!is_right)
    throw UsageError("ConvNeXt needs a patch_size, and as many hidden_sizes as depths, all of them positive");
}

}  // namespace

class ConvNextEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit ConvNextEmbeddingsImpl(const ConvNextConfig& config) {
    const std::vector<std::int64_t> patch = {config.patch_size.height, config.patch_size.width};
    patches_ = register_module(
        "patch_embeddings",
        Conv2d(Conv2dOptions(config.num_channels, config.hidden_sizes.front(), patch).stride(patch)));
    norm_ = register_module("layernorm", channel_norm(config.hidden_sizes.front()));
  }
  at::Tensor forward(const at::Tensor& pixel_values) {
    return normalize_pixels(norm_, patches_(pixel_values));
  }

 private:
  Conv2d patches_{nullptr};
  LayerNorm norm_{nullptr};
};
TORCH_MODULE(ConvNextEmbeddings);

class ConvNextEncoderImpl : public torch::nn::Module {
 public:
  explicit ConvNextEncoderImpl(const ConvNextConfig& config) {
    stages_ = register_module("stages", torch::nn::ModuleList());
    const auto rates = drop_path_rates(config);
    auto rate = rates.begin();
    std::int64_t from = config.hidden_sizes.front();
    for (std::size_t i = 0; i < config.depths.size(); ++i) {
      const std::int64_t to = config.hidden_sizes[i];
      stages_->push_back(
          ConvNextStage(config, from, to, i > 0 ? 2 : 1, std::vector<double>(rate, rate + config.depths[i])));
      rate += config.depths[i];
      from = to;
    }
  }

  at::Tensor forward(at::Tensor features) {
    for (const auto& stage : *stages_) features = stage->as<ConvNextStageImpl>()->forward(features);
    return features;
  }

 private:
  torch::nn::ModuleList stages_{nullptr};
};
TORCH_MODULE(ConvNextEncoder);

class ConvNextBodyImpl : public torch::nn::Module {
 public:
  explicit ConvNextBodyImpl(const ConvNextConfig& config) {
    embeddings_ = register_module("embeddings", ConvNextEmbeddings(config));
    encoder_ = register_module("encoder", ConvNextEncoder(config));
    norm_ = register_module("layernorm", channel_norm(config.hidden_sizes.back(), config.layer_norm_eps));
  }
  at::Tensor forward(const at::Tensor& pixel_values) {
    return norm_(encoder_(embeddings_(pixel_values)).mean({-2, -1}));
  }

 private:
  ConvNextEmbeddings embeddings_{nullptr};
  ConvNextEncoder encoder_{nullptr};
  LayerNorm norm_{nullptr};
};

ConvNextForImageClassificationImpl::ConvNextForImageClassificationImpl(const ConvNextConfig& config)
    : FamilyModel(config) {
  check_convnext(config);
  if (!config.id2label.empty()) check_class_names(config.id2label, config.num_labels);
  body_ = register_module("convnext", std::make_shared<ConvNextBodyImpl>(config));
  classifier_ =
      register_module("classifier", torch::nn::Linear(config.hidden_sizes.back(), config.num_labels));
  apply([&](torch::nn::Module& module) { initialize_vision(module, config_.initializer_range); });
}

at::Tensor ConvNextForImageClassificationImpl::forward(const at::Tensor& pixel_values) {
  // Each stage but the first halves height and width.
  const std::int64_t least = std::int64_t{1} << (config_.depths.size() - 1);
  check_pixel_values("ConvNeXt", pixel_values, config_.num_channels, least * config_.patch_size.height,
                     least * config_.patch_size.width);
  return classifier_(body_->forward(pixel_values));
}

void ConvNextForImageClassificationImpl::set_id2label(std::vector<std::string> names) {
  check_class_names(names, config_.num_labels);
  config_.id2label = std::move(names);
}

ConvNextForImageClassification load_convnext(const std::filesystem::path& folder, std::int64_t num_labels,
                                             PretrainedReport* report, bool new_classifier) {
  auto config = ConvNextConfig::from_file(folder);
  const bool is_new = set_new_classes(config, {.num_labels = num_labels, .new_classifier = new_classifier});
  ConvNextForImageClassification model(config);
  const PretrainedNames names = {.base_prefix = "convnext.",
                                 .other_heads = {"classifier."},
                                 .sizes = {{"embeddings.",
                                            "patch_embeddings.weight",
                                            {"hidden_sizes", "num_channels", "patch_size", "patch_size"}},
                                           {"classifier.", "", {"id2label", "hidden_sizes"}},
                                           {"", "", {"hidden_sizes", "hidden_sizes"}}},
                                 .layers = {{"encoder.stages.", "depths"}}};
  load_weights_with_head(*model, folder, names, {"classifier."}, is_new, report);
  return model;
}

}  // namespace lockstep::models
