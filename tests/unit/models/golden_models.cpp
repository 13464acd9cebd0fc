#include "unit/models/golden_models.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep::models {

const std::map<std::string, Values>& golden() {
  static const auto lines = [] {
    std::map<std::string, Values> all;
    // A test may have one file for both.
    for (const auto& path : std::set<std::string>{LOCKSTEP_GOLDEN_MODELS, LOCKSTEP_GOLDEN_DECODERS}) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string model, what;
        words >> model >> what;
        if (what == "config") continue;
        Values& values = all[model + " " + what];
        for (double value = 0; words >> value;) values.push_back(value);
      }
    }
    return all;
  }();
  return lines;
}

const std::map<std::string, std::string>& golden_configs() {
  static const auto configs = [] {
    std::map<std::string, std::string> all;
    std::ifstream file(LOCKSTEP_GOLDEN_DECODERS);
    const std::string mark = " config ";
    for (std::string line; std::getline(file, line);) {
      const auto found = line.find(mark);
      if (found != std::string::npos) all[line.substr(0, found)] = line.substr(found + mark.size());
    }
    return all;
  }();
  return configs;
}

namespace {

/// The numbers that make_models.py shows of a tensor: 24 of its elements at most, and its sum.
Values shown(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten().to(at::kDouble).contiguous();
  const std::int64_t count = flat.numel();
  Values values;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(count, 24); ++i) {
    const double place = count <= 24 ? static_cast<double>(i) : static_cast<double>(i * (count - 1)) / 23.0;
    values.push_back(flat.data_ptr<double>()[static_cast<std::int64_t>(std::nearbyint(place))]);
  }
  values.push_back(flat.sum().item<double>());
  return values;
}

int seed_of(const std::string& name) {
  int sum = 0;
  for (std::size_t i = 0; i < name.size(); ++i)
    sum += static_cast<int>(i + 1) * static_cast<unsigned char>(name[i]);
  return sum % 997;
}

/// As make_models.py's fill().
void fill(const std::string& name, const at::Tensor& tensor, double scale) {
  if (!tensor.is_floating_point() || name.ends_with("running_mean") || name.ends_with("running_var")) return;
  const auto count = tensor.numel();
  const double size = tensor.dim() > 1
                          ? std::sqrt(2.0 * static_cast<double>(tensor.size(0)) / static_cast<double>(count))
                          : 0.1;
  const at::Tensor i = at::arange(count, at::kDouble);
  at::Tensor values =
      at::sin(i * i * 0.0310585 + i * 0.7 + static_cast<double>(seed_of(name))) * size * scale;
  if (tensor.dim() == 1 && name.ends_with("weight")) values = values + 1;
  tensor.copy_(values.view(tensor.sizes()).to(at::kFloat));
}

}  // namespace

void expect_golden(const std::string& key, const at::Tensor& tensor, double tolerance) {
  ASSERT_TRUE(golden().contains(key)) << "no golden line: " << key;
  const Values& expected = golden().at(key);
  const Values values = shown(tensor);
  ASSERT_EQ(values.size(), expected.size()) << key;
  double largest = 1;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) largest = std::max(largest, std::abs(expected[i]));
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], tolerance * largest) << key << ", number " << i;
  }
  EXPECT_NEAR(values.back(), expected.back(), tolerance * largest * static_cast<double>(tensor.numel()))
      << key;
}

void fill(torch::nn::Module& module, double scale) {
  const at::NoGradGuard no_grad;
  std::set<const void*> seen;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& entry : list) {
      if (seen.insert(entry.value().unsafeGetTensorImpl()).second) fill(entry.key(), entry.value(), scale);
    }
  }
}

at::Tensor ids(std::int64_t rows, std::int64_t length, std::int64_t vocabulary, std::int64_t first) {
  at::Tensor tokens = at::empty({rows, length}, at::kLong);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < length; ++i) {
      tokens.data_ptr<std::int64_t>()[row * length + i] = (first + 7 * i + 11 * row * (i + 1)) % vocabulary;
    }
  }
  return tokens;
}

std::pair<at::Tensor, at::Tensor> padded(std::int64_t rows, std::int64_t length, std::int64_t vocabulary,
                                         std::int64_t padding) {
  const at::Tensor tokens = ids(rows, length, vocabulary);
  const at::Tensor mask = at::ones({rows, length}, at::kLong);
  for (std::int64_t row = 1; row < rows; ++row) {
    mask[row].narrow(0, 0, row + 1).zero_();
    tokens[row].narrow(0, 0, row + 1).fill_(padding);
  }
  return {tokens, mask};
}

void expect_gradients(const std::string& model, torch::nn::Module& module,
                      const std::vector<std::string>& names) {
  const auto parameters = module.named_parameters();
  for (const auto& name : names) expect_golden(model + " gradient:" + name, parameters[name].grad(), 1e-4);
}

void expect_saved_names(const std::string& name, const std::filesystem::path& folder) {
  std::map<std::string, Values> expected, saved;
  const std::string prefix = name + " saved:";
  for (const auto& [key, sizes] : golden()) {
    if (key.starts_with(prefix)) expected[key.substr(prefix.size())] = sizes;
  }
  for (const auto& [tensor_name, tensor] : load_file(folder / "model.safetensors").tensors)
    saved[tensor_name] = Values(tensor.sizes().begin(), tensor.sizes().end());
  EXPECT_FALSE(expected.empty()) << "no golden lines: " << prefix;
  EXPECT_EQ(saved, expected) << name;
}

}  // namespace lockstep::models
