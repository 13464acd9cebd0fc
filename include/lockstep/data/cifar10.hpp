#pragma once

#include <filesystem>
#include <span>

#include "lockstep/data/batch.hpp"

namespace lockstep {

/// Reads a file of CIFAR-10's binary version (data_batch_1.bin ... data_batch_5.bin, test_batch.bin): records
/// of 3073 bytes, a label from 0 to 9 and then 32 x 32 pixels in red, green and blue planes, row by row.
/// Source of the format: https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
///
///     lockstep::TensorDataset train(lockstep::read_cifar10("cifar/data_batch_1.bin"));
///
/// Gives "image", uint8 of the shape [records, 3, 32, 32] with values from 0 to 255, and "label", int64 of
/// the shape [records], both on the CPU and owned by the caller. *Local*. Throws DataError, naming the file,
/// when its length is no multiple of 3073 or a label is out of range (naming the record), or it has no
/// record.
Batch read_cifar10(const std::filesystem::path& path);

/// The same for several files, one after the other. Throws UsageError for no file.
Batch read_cifar10(std::span<const std::filesystem::path> paths);

}  // namespace lockstep
