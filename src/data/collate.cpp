#include "lockstep/data/collate.hpp"

#include <ATen/ATen.h>

#include <sstream>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::string called(const std::vector<Example>& examples, std::size_t place) {
  const auto& indices = examples[place].indices;
  if (indices.size() == 1) return "sample " + std::to_string(indices.front());
  return "sample number " + std::to_string(place) + " of the batch";
}

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << "shape " << tensor.sizes() << " " << tensor.dtype() << " on " << tensor.device();
  return text.str();
}

bool alike(const at::Tensor& left, const at::Tensor& right) {
  return left.defined() && right.defined() && left.sizes() == right.sizes() &&
         left.dtype() == right.dtype() && left.device() == right.device();
}

void check_names(const std::vector<Example>& examples, std::size_t place) {
  const auto& first = examples.front();
  const auto& other = examples[place];
  for (const auto* pair : {&first, &other}) {
    const auto& absent_from = pair == &first ? other : first;
    for (const auto& [name, tensor] : pair->items()) {
      if (absent_from.contains(name)) continue;
      throw DataError("cannot stack " + called(examples, place) + " with " + called(examples, 0) +
                      ": only one of them has a tensor named '" + name +
                      "'. Every sample of a data set needs the same names.");
    }
  }
}

at::Tensor stacked(const std::vector<Example>& examples, const std::string& name) {
  std::vector<at::Tensor> rows;
  rows.reserve(examples.size());
  for (std::size_t place = 0; place < examples.size(); ++place) {
    const auto& row = examples[place][name];
    const auto& first = place == 0 ? row : rows.front();
    if (!alike(row, first)) {
      throw DataError("cannot stack '" + name + "' of " + called(examples, place) + ", which is " +
                      described(row) + ", with " + called(examples, 0) + ", which is " + described(first) +
                      ". Bring them to one shape, or give the loader a collate function that pads.");
    }
    rows.push_back(row);
  }
  return at::stack(rows);
}

}  // namespace

Batch default_collate(std::vector<Example> examples) {
  if (examples.empty()) throw UsageError("default_collate was given no samples: a batch needs at least one.");
  for (std::size_t place = 1; place < examples.size(); ++place) check_names(examples, place);
  Batch batch;
  for (const auto& item : examples.front().items()) batch.insert(item.first, stacked(examples, item.first));
  for (const auto& example : examples) {
    batch.indices.insert(batch.indices.end(), example.indices.begin(), example.indices.end());
  }
  return batch;
}

}  // namespace lockstep
