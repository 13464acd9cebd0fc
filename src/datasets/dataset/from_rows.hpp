#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep::table {

/// ArrowDataset::from_rows() of a piece of the rows: errors count them from `first`.
ArrowDataset from_rows(std::span<const Value> rows, const std::optional<Features>& features,
                       std::int64_t first);

}  // namespace lockstep::table
