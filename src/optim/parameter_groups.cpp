
#include "lockstep/optim/parameter_groups.hpp"

#include "core/text.hpp"

namespace lockstep::optim {
namespace {

std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts(1);
  for (const char letter : name) {
    if (letter == '.') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

bool is_norm(const std::string& part) { return part == "norm" || part.ends_with("_norm"); }

}  // namespace

bool takes_weight_decay(std::string_view name) {
  const std::string small = to_lower_case(name);
  for (const char* word : {"bias", "layernorm", "rmsnorm"}) {
    if (small.find(word) != std::string::npos) return false;
  }
  const auto parts = parts_of(small);
  return std::none_of(parts.begin(), parts.end(), is_norm);
}

}  // namespace lockstep::optim
