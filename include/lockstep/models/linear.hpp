#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/lora_config.hpp"
#include "lockstep/parallel/adapter_layer.hpp"

namespace lockstep::models {

/// A layer to which add_lora() can give an adapter: two linear layers without biases, "lora_A" to the rank
/// and "lora_B" back, whose product is added to the layer's output; or, for the table of an embedding, two
/// matrices "lora_embedding_A" [r, rows] and "lora_embedding_B" [width, r]. *Local*.
class LoraLayer : public parallel::AdapterLayer {
 public:
  struct Adapter {
    std::int64_t r = 8;
    /// Times which the product counts.
    double scaling = 1;
    double dropout = 0;
    LoraInit init = LoraInit::kaiming;
  };

  bool has_adapter() const noexcept override { return !down_.is_empty() || table_a_.defined(); }
  parallel::AdapterForm adapter_form(torch::nn::Module& model) const override;
  /// A new adapter, in float32 unless the layer is in float64, on the layer's device. `config` is that of the
  /// whole model, for lora_of(). Throws UsageError if the layer has one.
  void add_adapter(const Adapter& adapter, std::shared_ptr<const LoraConfig> config);
  /// Adds the product to the weight, in float32, and takes the adapter away. `is_shared`: another layer has
  /// the same weight, so that this one gets a weight of its own.
  void merge_adapter(bool is_shared = false);
  void remove_adapter();
  /// Off: the layer is as without its adapter, which stays.
  void set_adapter_on(bool on) noexcept { is_on_ = on; }
  bool is_adapter_on() const noexcept { return is_on_; }
  /// Null without an adapter.
  const std::shared_ptr<const LoraConfig>& lora_config() const noexcept { return config_; }
  /// Whether the weight is [inputs, outputs].
  virtual bool has_turned_weight() const { return false; }
  /// Whether it is the table of an embedding.
  virtual bool is_embedding() const { return false; }
  /// Whether the adapter's parameters are whole, not a rank's part of them; and whether those of the layer
  /// are, too.
  bool is_adapter_whole() const;
  bool is_whole() const;
  /// Identifies the layer's weight.
  const void* weight_implementation() const;

 protected:
  /// `output` of the layer for `input`, with what the adapter adds, in the dtype of `output`.
  at::Tensor adapted(const at::Tensor& input, const at::Tensor& output);
  /// What the adapter of an embedding adds for tokens, in float32; undefined if there is none, or it is off.
  at::Tensor added_to_rows(const at::Tensor& ids, std::int64_t padding_idx) const;

  struct Sizes {
    std::int64_t inputs, outputs;
  };
  virtual Sizes sizes() const = 0;
  virtual torch::nn::Module& module() = 0;
  virtual const at::Tensor& own_weight() const = 0;
  virtual void set_own_weight(const at::Tensor& weight) = 0;
  /// Of embeddings: takes a parameter out of the module.
  virtual void forget_parameter(const std::string& name);

 private:
  void add_matrices(const Adapter& adapter);
  void add_tables(const Adapter& adapter);
  const at::Tensor& matrix_a() const { return is_embedding() ? table_a_ : down_->weight; }
  const at::Tensor& matrix_b() const { return is_embedding() ? table_b_ : up_->weight; }

  Adapter adapter_;
  bool is_on_ = true;
  torch::nn::Linear down_{nullptr}, up_{nullptr};
  at::Tensor table_a_, table_b_;
  std::shared_ptr<const LoraConfig> config_;
};

/// torch::nn::Linear that can have an adapter: the linear layers of the models here, and of your own.
class LinearImpl : public torch::nn::LinearImpl, public LoraLayer {
 public:
  using torch::nn::LinearImpl::LinearImpl;
  /// In bfloat16 and float16 on a GPU, of autocast or of the weights, by Lockstep's own operation: see
  /// FusedKernels.
  at::Tensor forward(const at::Tensor& input);
  /// Followed by an activation by its name in config.json: "gelu", "gelu_new", "relu", "silu", "tanh". Throws
  /// UsageError for others.
  at::Tensor activated(const at::Tensor& input, const std::string& activation);

 private:
  Sizes sizes() const override { return {options.in_features(), options.out_features()}; }
  torch::nn::Module& module() override { return *this; }
  const at::Tensor& own_weight() const override { return weight; }
  void set_own_weight(const at::Tensor& own) override { parameters_["weight"] = weight = own; }
};
TORCH_MODULE(Linear);

/// The outputs of several layers of the same input, such as queries, keys and values: with fused kernels and
/// without adapters, one product. *Local*.
std::vector<at::Tensor> packed_forward(const at::Tensor& input, const std::vector<Linear>& layers);

/// A linear layer whose weight is [inputs, outputs], as in GPT-2's files; transformers' Conv1D. The weight
/// begins normal with deviation `spread`, the bias zero.
class Conv1DImpl : public torch::nn::Module, public LoraLayer {
 public:
  Conv1DImpl(std::int64_t inputs, std::int64_t outputs, double spread);
  /// `input` [rows, tokens, inputs].
  at::Tensor forward(const at::Tensor& input);
  /// As of Linear.
  at::Tensor activated(const at::Tensor& input, const std::string& activation);
  bool has_turned_weight() const override { return true; }

 private:
  Sizes sizes() const override { return {inputs_, outputs_}; }
  torch::nn::Module& module() override { return *this; }
  const at::Tensor& own_weight() const override { return weight_; }
  void set_own_weight(const at::Tensor& own) override { parameters_["weight"] = weight_ = own; }

  std::int64_t inputs_, outputs_;
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Conv1D);

}  // namespace lockstep::models
