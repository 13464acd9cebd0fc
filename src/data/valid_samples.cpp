#include "data/valid_samples.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::data {

bool all_valid(const Batch& batch) {
  return std::find(batch.valid.begin(), batch.valid.end(), false) == batch.valid.end();
}

at::Tensor valid_rows(const at::Tensor& tensor, const Batch& batch, const char* who) {
  const auto known = static_cast<std::int64_t>(std::max(batch.indices.size(), batch.valid.size()));
  const auto samples = known == 0 ? batch.size() : known;
  if (tensor.dim() == 0 || (samples == 0 ? tensor.size(0) != 0 : tensor.size(0) % samples != 0)) {
    throw UsageError(fmt::format(
        "{}: the batch has {} samples, but a tensor of it has {}. Give it values for each sample.", who,
        samples,
        tensor.dim() == 0 ? "no rows: it is a scalar"
                          : fmt::format("{} rows, which is not a multiple", tensor.size(0))));
  }
  if (all_valid(batch)) return tensor;
  at::Tensor mask = at::ones({samples}, at::kBool);
  std::copy(batch.valid.begin(), batch.valid.end(), mask.mutable_data_ptr<bool>());
  mask = mask.repeat_interleave(tensor.size(0) / samples);
  return tensor.index({mask.to(tensor.device())});
}

Batch valid_samples(const Batch& batch, const char* who) {
  Batch valid;
  for (const auto& [name, tensor] : batch.items()) valid.set(name, valid_rows(tensor, batch, who));
  for (std::size_t row = 0; row < batch.indices.size(); ++row) {
    if (batch.valid.empty() || batch.valid[row]) valid.indices.push_back(batch.indices[row]);
  }
  valid.valid.assign(valid.indices.size(), true);
  for (const auto& [name, texts] : batch.text_items()) {
    std::vector<std::string> counted;
    for (std::size_t row = 0; row < texts.size(); ++row)
      if (batch.valid.empty() || batch.valid[row]) counted.push_back(texts[row]);
    valid.set_texts(name, std::move(counted));
  }
  return valid;
}

}  // namespace lockstep::data
