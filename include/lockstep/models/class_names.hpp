#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::models {

// Names of a classifier's classes, as transformers keeps them in config.json ("id2label"). A model whose
// classes have no names gets placeholders there, LABEL_0, LABEL_1, ...

/// The placeholders of so many classes.
std::vector<std::string> placeholder_class_names(std::int64_t count);

/// Whether these are names that somebody gave: not empty, and not the placeholders.
bool are_class_names(const std::vector<std::string>& names);

}  // namespace lockstep::models
