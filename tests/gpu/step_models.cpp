#include "gpu/step_models.hpp"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/checkpoint/safetensors.hpp"

using lockstep::MixedPrecision;
using lockstep::TensorMap;
namespace models = lockstep::models;

models::Gpt2Config gpt2_of_size(bool full) {
  models::Gpt2Config config{.resid_pdrop = 0, .embd_pdrop = 0, .attn_pdrop = 0};
  if (full) return config;
  config.vocab_size = 101, config.n_positions = 32, config.n_embd = 32;
  config.n_layer = config.n_head = 2;
  return config;
}

models::BertConfig bert_of_size(bool full) {
  models::BertConfig config;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  if (full) return config;
  config.vocab_size = 101, config.hidden_size = 32, config.intermediate_size = 64;
  config.num_hidden_layers = config.num_attention_heads = 2;
  config.max_position_embeddings = 32;
  return config;
}

models::ResNetOptions resnet_of_size(bool full) {
  auto shape = models::ResNetOptions::resnet50(full ? 1000 : 10);
  if (!full) shape.layers = {1, 1, 1, 1}, shape.small_images = true;
  return shape;
}

at::Tensor random_tokens(std::int64_t rows, std::int64_t length, std::int64_t vocabulary) {
  return torch::randint(0, vocabulary, {rows, length}, torch::kLong);
}

StepBatch random_images(std::int64_t rows, bool full) {
  const std::int64_t pixels = full ? 224 : 32;
  return {torch::randn({rows, 3, pixels, pixels}), torch::randint(0, full ? 1000 : 10, {rows})};
}

void save_start(const std::string& file, const torch::nn::Module& model, const StepBatch& batch) {
  TensorMap tensors{{"batch.input", batch.first}, {"batch.target", batch.second}};
  for (const auto& parameter : model.named_parameters())
    tensors[parameter.key()] = parameter.value().detach();
  for (const auto& buffer : model.named_buffers()) tensors[buffer.key()] = buffer.value();
  lockstep::save_file(tensors, file);
}

std::int64_t peak_bytes(const at::Device& device) {
  if (!device.is_cuda()) return 0;
  return at::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes.at(0).peak;
}

void synchronize(const at::Device& device) {
  if (device.is_cuda()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

MixedPrecision mixed_precision_by_name(const std::string& name) {
  return name == "bf16" ? MixedPrecision::bf16 : name == "fp16" ? MixedPrecision::fp16 : MixedPrecision::no;
}
