#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::models {

// Names of a classifier's classes, as transformers stores them in config.json ("id2label"). A model whose
// classes have no names gets the placeholders LABEL_0, LABEL_1, ... there.

/// The placeholders of `count` classes.
std::vector<std::string> placeholder_class_names(std::int64_t count);

/// Whether these are actual names: not empty, and not the placeholders.
bool are_class_names(const std::vector<std::string>& names);

}  // namespace lockstep::models
