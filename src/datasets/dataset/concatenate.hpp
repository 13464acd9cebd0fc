#pragma once

#include <filesystem>
#include <span>

#include "lockstep/datasets/arrow_dataset.hpp"

namespace lockstep {

/// ArrowDataset::concatenate(): a column that one of the data sets has not, or has without a type, is null
/// there. If they are `files`, also integers beside floating numbers become such, and whole floating numbers
/// beside integers become integers. Throws UsageError, with the data set or file, for other differences.
ArrowDataset concatenated(std::span<const ArrowDataset> datasets,
                          std::span<const std::filesystem::path> files);

}  // namespace lockstep
