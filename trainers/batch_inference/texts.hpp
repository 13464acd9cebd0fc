#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lockstep/datasets/map.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "options.hpp"

/// Texts as tensors on the model's device: int64 [rows, tokens of the longest].
struct Tokens {
  at::Tensor ids, mask, types;
};

/// The tokenizer of a model, applied to the texts of a batch.
class Texts {
 public:
  Texts(const Options& options, std::int64_t padding, const std::string& device);

  Tokens encode(const lockstep::MapBatch& batch) const;
  /// The texts of rows of tokens, beginning at the token `first` of each row, without special tokens.
  std::vector<std::string> decode(const at::Tensor& tokens, std::int64_t first) const;
  /// The rows' texts without padding, one tensor [1, tokens] each: for models that do not support left
  /// padding.
  std::vector<at::Tensor> encode_each(const lockstep::MapBatch& batch) const;

 private:
  std::vector<lockstep::tokenizer::Encoding> encodings(const lockstep::MapBatch& batch) const;

  std::string column_;
  at::Device device_;
  lockstep::Tokenizer tokenizer_;
  std::int64_t padding_;
};
