#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace lockstep {

/// Reads an IDX file, the format of the MNIST files: two zero bytes, a dtype code, the number of dimensions,
/// each dimension as a 4-byte number, and the elements, all big-endian. A file compressed with gzip is
/// decompressed while it is read.
///
/// Returns a new CPU tensor of the file's shape and of the dtype of its code: uint8 (0x08), int8 (0x09),
/// int16 (0x0B), int32 (0x0C), float32 (0x0D) or float64 (0x0E).
///
/// *Local*; thread-safe. Memory is allocated only after the header was checked against the file's size (if
/// compressed, against the largest size that the file can decompress to). Throws DataError, naming the file
/// and the position, if the file cannot be read, has no IDX magic, has no dimension or more than 64, or has
/// more or fewer bytes than its header claims.
at::Tensor read_idx(const std::filesystem::path& path);

/// Writes a tensor as an IDX file for read_idx(). The file appears completely or not at all (see AtomicFile).
/// *Local*. Throws UsageError for a scalar, more than 64 dimensions, a dimension of 2^32 or more, or a dtype
/// other than the six above; Error, naming the path and the system's reason, if writing fails.
void write_idx(const at::Tensor& tensor, const std::filesystem::path& path);

}  // namespace lockstep
