#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/models/bert.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/models/resnet.hpp"
#include "lockstep/train/mixed_precision.hpp"

// The models that are trained beside Python: as published, or small enough for any machine. Without dropout,
// so that both sides compute the same.

/// A batch's input and target.
using StepBatch = std::pair<at::Tensor, at::Tensor>;

lockstep::models::Gpt2Config gpt2_of_size(bool full);
lockstep::models::BertConfig bert_of_size(bool full);
lockstep::models::ResNetOptions resnet_of_size(bool full);

/// Tokens [rows, length].
at::Tensor random_tokens(std::int64_t rows, std::int64_t length, std::int64_t vocabulary);
/// Images [rows, 3, pixels, pixels] and their classes [rows].
StepBatch random_images(std::int64_t rows, bool full);

/// Writes the model's weights and the batch, which Python's side begins with.
void save_start(const std::string& file, const torch::nn::Module& model, const StepBatch& batch);

/// The most of the device's memory that tensors have taken; 0 on a CPU.
std::int64_t peak_bytes(const at::Device& device);
/// Waits for the device.
void synchronize(const at::Device& device);

lockstep::MixedPrecision mixed_precision_by_name(const std::string& name);
