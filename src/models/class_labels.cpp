#include "models/class_labels.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/models/class_names.hpp"

namespace lockstep::models {

void check_class_names(const std::vector<std::string>& id2label, std::int64_t num_labels) {
  if (std::ssize(id2label) == num_labels) return;
  throw UsageError(fmt::format("id2label has {} names, but the classifier has {} classes: expected as many",
                               id2label.size(), num_labels));
}

bool is_problem_type(const std::string& type) {
  return type.empty() || std::find(kProblemTypes.begin(), kProblemTypes.end(), type) != kProblemTypes.end();
}

void add_class_names(nlohmann::ordered_json& fields, std::int64_t num_labels,
                     const std::vector<std::string>& id2label) {
  if (!id2label.empty()) check_class_names(id2label, num_labels);
  nlohmann::ordered_json names;
  std::map<std::string, std::int64_t> ids;
  std::int64_t label = 0;
  for (const auto& name : id2label.empty() ? placeholder_class_names(num_labels) : id2label) {
    names[std::to_string(label)] = name;
    ids[name] = label++;
  }
  fields["id2label"] = std::move(names);
  fields["label2id"] = ids;
}

}  // namespace lockstep::models
