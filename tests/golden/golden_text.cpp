#include "golden_text.hpp"

#include <torch/types.h>

#include <cstdio>
#include <sstream>

namespace lockstep::golden {
namespace {

std::string hexadecimal(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%a", value);
  return text;
}

}  // namespace

void Text::add(const std::string& heading, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    text_ += heading + " none\n";
    return;
  }
  std::ostringstream shape;
  shape << tensor.sizes();
  text_ += heading + " " + shape.str() + "\n";
  const at::Tensor values = tensor.detach().to(torch::kDouble).flatten().contiguous();
  const double* const first = values.const_data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i) text_ += hexadecimal(first[i]) + "\n";
}

void Text::add_of_all_ranks(const std::string& heading, const at::Tensor& tensor) {
  const auto parts = group_.all_gather(tensor.detach().contiguous());
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    add(heading + " of rank " + std::to_string(rank), parts[rank]);
  }
}

}  // namespace lockstep::golden
