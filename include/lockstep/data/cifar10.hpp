#pragma once

#include <filesystem>
#include <span>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Reads a file of CIFAR-10's binary version (data_batch_1.bin ... data_batch_5.bin, test_batch.bin): records
/// of 3073 bytes, each a label from 0 to 9 followed by 32 x 32 pixels in red, green and blue planes, row by
/// row. Source of the format: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
///
///     lockstep::TensorDataset train(lockstep::read_cifar10("cifar/data_batch_1.bin"));
///
/// Returns "image", uint8 [records, 3, 32, 32] with values from 0 to 255, and "label", int64 [records], both
/// on the CPU and owned by the caller. *Local*. Throws DataError, naming the file, if it has no record, its
/// length is not a multiple of 3073, or a label is out of range (naming the record).
Batch read_cifar10(const std::filesystem::path& path);

/// The same for several files, concatenated. Throws UsageError if `paths` is empty.
Batch read_cifar10(std::span<const std::filesystem::path> paths);

}  // namespace lockstep
