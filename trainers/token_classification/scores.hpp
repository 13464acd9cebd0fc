#pragma once

#include <string>
#include <vector>

#include "lockstep/train/evaluation_metrics.hpp"

/// Precision, recall and F1 of entities, and the accuracy of tags. With `by_type`, the scores of each type of
/// entity as well: "PER_precision", "PER_recall", "PER_f1", "PER_number".
lockstep::ComputeMetrics entity_scores(const std::vector<std::string>& tags, bool by_type);
