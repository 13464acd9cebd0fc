#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
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
  /// With padding in front, for texts that are continued. An empty text becomes the token of `first_token`,
  /// which is called for one.
  Tokens encode_in_front(const lockstep::MapBatch& batch,
                         const std::function<std::int64_t()>& first_token) const;
  /// The texts of rows of tokens, from the token `first` of each row up to kNoToken, without special tokens.
  std::vector<std::string> decode(const at::Tensor& tokens, std::int64_t first) const;

  const lockstep::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::vector<lockstep::tokenizer::Encoding> encodings(const lockstep::MapBatch& batch) const;

  std::string column_;
  at::Device device_;
  lockstep::Tokenizer tokenizer_;
  std::int64_t padding_;
};
