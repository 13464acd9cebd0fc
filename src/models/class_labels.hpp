#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

// The classes of a classifier in its configuration.
namespace lockstep::models {

/// The values of "problem_type".
inline constexpr std::initializer_list<const char*> kProblemTypes = {
    "regression", "single_label_classification", "multi_label_classification"};

/// Whether it is one of them, or empty.
bool is_problem_type(const std::string& type);

/// "id2label" and "label2id" of config.json for these class names, or placeholders if there are none. Throws
/// UsageError unless there are none or `num_labels` names.
void add_class_names(nlohmann::ordered_json& fields, std::int64_t num_labels,
                     const std::vector<std::string>& id2label);

/// Throws UsageError unless there are `num_labels` names.
void check_class_names(const std::vector<std::string>& id2label, std::int64_t num_labels);

/// What is asked of the classifier of a model that is loaded: see FromPretrainedOptions.
struct NewClasses {
  std::int64_t num_labels = 0;
  bool new_classifier = false;
};

/// Sets the number of classes of a configuration that was read, and whether its classifier is a new one: then
/// it has no names of classes.
template <class Config>
bool set_new_classes(Config& config, const NewClasses& classes) {
  const bool is_new =
      classes.new_classifier || (classes.num_labels != 0 && classes.num_labels != config.num_labels);
  if (is_new) {
    config.id2label.clear();
    config.problem_type.clear();
  }
  if (classes.num_labels != 0) config.num_labels = classes.num_labels;
  return is_new;
}

}  // namespace lockstep::models
