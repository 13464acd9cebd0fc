#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/linear.hpp"
#include "lockstep/models/nf4.hpp"

namespace lockstep::models {

/// What a quantized layer has beside its weight, as the module "weight" in it: so that names are those of
/// bitsandbytes' files ("q_proj.weight.absmax"). The scales' levels are a frozen parameter, which
/// fully_shard() divides as it does the weight; what is in float32 is small, and in buffers.
class Nf4StateImpl final : public torch::nn::Module {
 public:
  /// `dtype`: that of the weights before, and of the layer once it is dequantized.
  Nf4StateImpl(std::int64_t outputs, std::int64_t inputs, const Nf4Options& options, at::ScalarType dtype,
               const at::Device& device);

  /// The weight that `packed` and this are.
  Nf4Weight weight_of(const at::Tensor& packed) const;
  /// Takes the state of `weight`, but for its packed levels. *Collective* under a ShardedInit.
  void set(const Nf4Weight& weight);
  /// Takes what the text of a file's quant_state says. Throws DataError, in the name of `layer`, if it does
  /// not fit, or if the levels that the file has are others.
  void read_text(const at::Tensor& bytes, const std::string& layer);
  const Nf4Options& options() const noexcept { return options_; }

 private:
  void write_text();

  Nf4Options options_;
  Nf4Weight form_;
  /// Their values: buffers may be converted with the model.
  at::Tensor absmax_, nested_absmax_, levels_, nested_levels_;
  std::shared_ptr<torch::nn::Module> text_;
};

/// The state of a layer; null unless it is quantized.
std::shared_ptr<Nf4StateImpl> nf4_state(const torch::nn::Module& layer);

/// Gives the layer a quantized weight, of zeros, in place of its own.
void make_nf4(LinearImpl& layer, const Nf4Options& options);
/// Gives a quantized layer the weight `values`, [outputs, inputs].
void set_nf4(LinearImpl& layer, const at::Tensor& values);

/// The outputs of a quantized layer, in the dtype of `input`, with gradients of the input alone: backward
/// dequantizes again.
at::Tensor nf4_linear(const at::Tensor& input, const LinearImpl& layer, const Nf4StateImpl& state);

struct NamedNf4Layer {
  /// "model.layers.0.self_attn.q_proj"
  std::string name;
  std::shared_ptr<LinearImpl> layer;
};
/// The quantized layers of a model.
std::vector<NamedNf4Layer> nf4_layers(torch::nn::Module& model);

/// While it exists, the linear layers in blocks of models that this thread makes are quantized.
class [[nodiscard]] WeightsQuantization {
 public:
  /// None: does nothing.
  explicit WeightsQuantization(std::optional<Nf4Options> options);
  ~WeightsQuantization();
  WeightsQuantization(const WeightsQuantization&) = delete;
  WeightsQuantization& operator=(const WeightsQuantization&) = delete;

  /// Throws UsageError for a block with layers that cannot be quantized (Conv1D).
  static void apply(torch::nn::Module& block);

 private:
  std::optional<Nf4Options> before_;
};

}  // namespace lockstep::models
