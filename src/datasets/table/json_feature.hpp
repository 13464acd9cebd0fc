#pragma once

#include "lockstep/datasets/features.hpp"

namespace lockstep::table {

/// The feature Json of `datasets`: each value is kept as its JSON text, so that objects need not have the
/// same fields, nor fields the same type.
Feature json_feature();
bool is_json(const Feature& feature);

}  // namespace lockstep::table
