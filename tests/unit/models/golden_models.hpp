#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::models {

// Comparison with golden/models.txt and golden/decoders.txt, which make_models.py and make_decoders.py write
// in Python.

using Values = std::vector<double>;

/// The lines of the files, by model and what is shown.
const std::map<std::string, Values>& golden();

/// The texts of config.json in golden/decoders.txt, by model.
const std::map<std::string, std::string>& golden_configs();

/// Compares a tensor with what make_models.py shows of it: 24 of its elements at most, and its sum.
void expect_golden(const std::string& key, const at::Tensor& tensor, double tolerance = 2e-5);

/// As make_models.py's fill(). A shared tensor counts under its first name.
void fill(torch::nn::Module& module, double scale = 1);

/// As make_models.py's ids().
at::Tensor ids(std::int64_t rows, std::int64_t length, std::int64_t vocabulary, std::int64_t first = 3);

/// As make_models.py's padded().
std::pair<at::Tensor, at::Tensor> padded(std::int64_t rows, std::int64_t length, std::int64_t vocabulary,
                                         std::int64_t padding);

void expect_gradients(const std::string& model, torch::nn::Module& module,
                      const std::vector<std::string>& names);

/// The three ways of make_models.py's texts().
template <class Generate>
void expect_texts(const std::string& key, const Generate& texts, GenerationConfig config) {
  config.max_new_tokens = 8;
  config.pad_token_id = 1;
  expect_golden(key + "greedy", texts(config), 0);
  config.num_beams = 3;
  expect_golden(key + "beams", texts(config), 0);
  config.num_beams = 4;
  config.early_stopping = true;
  config.length_penalty = 2;
  expect_golden(key + "early", texts(config), 0);
}

/// The tensors in `folder`/model.safetensors and their sizes are those that the peer saves.
void expect_saved_names(const std::string& name, const std::filesystem::path& folder);

/// The same for what save_pretrained writes of a model.
template <class Model>
void expect_saved(const std::string& name, Model model) {
  const testing::TemporaryFolder folder;
  save_pretrained(model, folder.path());
  expect_saved_names(name, folder.path());
}

}  // namespace lockstep::models
