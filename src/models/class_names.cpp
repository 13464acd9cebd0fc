#include "lockstep/models/class_names.hpp"

#include <fmt/core.h>

namespace lockstep::models {

std::vector<std::string> placeholder_class_names(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t number = 0; number < count; ++number) names.push_back(fmt::format("LABEL_{}", number));
  return names;
}

bool are_class_names(const std::vector<std::string>& names) {
  return names != placeholder_class_names(static_cast<std::int64_t>(names.size()));
}

}  // namespace lockstep::models
