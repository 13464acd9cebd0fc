#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::models {

/// Keys and values that attention has computed for earlier tokens, a pair a layer, [rows, heads, tokens,
/// size].
struct KeyValueCache {
  struct Layer {
    at::Tensor key, value;
  };
  std::vector<Layer> layers;

  /// Tokens seen so far.
  std::int64_t length() const;
  /// Adds a layer's new keys and values behind the old ones, and puts all of them into `key` and `value`.
  void append(std::size_t layer, at::Tensor& key, at::Tensor& value);
  /// Row i becomes what row `rows[i]` was.
  void reorder(const at::Tensor& rows);
};

}  // namespace lockstep::models
