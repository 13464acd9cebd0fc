#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/models/encoder.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/decoder_form.hpp"
#include "models/rope.hpp"

namespace lockstep::models {

/// torch::nn::LayerNorm, with or without a bias.
torch::nn::LayerNorm norm_of_rows(std::int64_t width, double epsilon, bool has_bias);

/// The values of the fields "layer_types" and "classifier_pooling".
inline constexpr std::initializer_list<const char*> kModernLayerTypes = {kFullAttention, kSlidingAttention};
inline constexpr std::initializer_list<const char*> kPoolings = {"cls", "mean"};

/// "full_attention" or "sliding_attention" for each layer.
std::vector<std::string> modern_layer_types(const EncoderConfig& config);

/// What a layer gets besides the states.
struct ModernBertContext {
  AttentionMask mask;
  Rotation rotation;
};

/// The positions and masks of both kinds of layers, those that attend to all tokens and those with a window.
class ModernBertPositions {
 public:
  explicit ModernBertPositions(const EncoderConfig& config);

  struct Contexts {
    ModernBertContext global, local;
  };
  /// `positions` are integers [tokens] or [rows, tokens]; `mask` is that of tokens without a
  /// window. `states` have the dtype of the model's states.
  Contexts contexts_at(const at::Tensor& positions, const AttentionMask& mask, const at::Tensor& states);
  bool has_window(std::size_t layer) const { return has_window_.at(layer); }

 private:
  AttentionMask near(const AttentionMask& mask, const at::Tensor& states) const;

  AttentionHeads heads_;
  std::int64_t reach_;
  std::vector<bool> has_window_;
  Rope global_, local_;
};

/// Attention and a gated feed-forward part, each of the norm of its input, and added to it. Options of FSDP
/// call it by its name in Python.
class ModernBertEncoderLayerImpl : public torch::nn::Module, public Unit {
 public:
  /// The first layer has no norm before attention: the embeddings have one.
  ModernBertEncoderLayerImpl(const EncoderConfig& config, bool is_first);
  at::Tensor forward(const at::Tensor& states, const ModernBertContext& context);

 private:
  at::Tensor body(const at::Tensor& states, const ModernBertContext& context);

  std::int64_t heads_;
  double attention_dropout_, mlp_dropout_;
  std::string activation_;
  Linear all_{nullptr}, attended_{nullptr}, inner_{nullptr}, outer_{nullptr};
  torch::nn::LayerNorm attention_norm_{nullptr}, mlp_norm_{nullptr};
};
TORCH_MODULE(ModernBertEncoderLayer);

/// Initializes the layers and the embedding of a ModernBERT's body from a normal distribution that is cut
/// off, as transformers does: outputs of a layer's parts begin smaller.
void initialize_modern_body(torch::nn::Module& body, const EncoderConfig& config);
/// The same for a weight, with this deviation.
void initialize_modern_weight(const at::Tensor& weight, double spread, const EncoderConfig& config);
/// The same for a layer of a head, whose bias becomes 0.
void initialize_modern_layer(torch::nn::LinearImpl& layer, double spread, const EncoderConfig& config);
/// The deviation of what adds to the states, and of heads.
double modern_output_spread(const EncoderConfig& config);

}  // namespace lockstep::models
