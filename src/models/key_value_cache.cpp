#include "key_value_cache.hpp"

#include <ATen/ATen.h>

namespace lockstep::models {

std::int64_t KeyValueCache::length() const { return layers.empty() ? 0 : layers.front().key.size(2); }

void KeyValueCache::append(std::size_t layer, at::Tensor& key, at::Tensor& value) {
  if (layer == layers.size()) {
    layers.push_back({key, value});
    return;
  }
  auto& known = layers.at(layer);
  known.key = key = at::cat({known.key, key}, 2);
  known.value = value = at::cat({known.value, value}, 2);
}

void KeyValueCache::reorder(const at::Tensor& rows) {
  for (auto& layer : layers) {
    layer.key = layer.key.index_select(0, rows);
    layer.value = layer.value.index_select(0, rows);
  }
}

}  // namespace lockstep::models
