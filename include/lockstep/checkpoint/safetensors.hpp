#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/core/checksum.hpp"

namespace lockstep {

/// Tensors by name, in the byte order of the names: the order in which the format sorts them as well.
using TensorMap = std::map<std::string, at::Tensor>;

/// Texts by name that a file carries beside its tensors.
using TensorMetadata = std::map<std::string, std::string>;

/// What a safetensors file holds.
struct SafeTensors {
  TensorMap tensors;
  TensorMetadata metadata;
};

/// Writes tensors into a safetensors file (github.com/huggingface/safetensors), which Python and Rust read.
///
/// The bytes are those of Python's `safetensors.torch.save_file` for the same tensors and metadata, with one
/// freedom that Python leaves: it writes several metadata keys in an order of chance, this function writes
/// them sorted. Empty metadata is left out, as Python does with None.
///
/// Tensors may lie on any device, need not be contiguous, and may require gradients; one at a time is copied
/// where a copy is needed. Names that share storage are written once for each name (Python refuses them): a
/// caller who wants them once removes the others first. Dtypes: float64, float32, float16, bfloat16, the
/// integers of both signs, bool, complex64, and the one-byte float8 kinds.
///
/// *Local*: in a job of several ranks one rank calls it. The file appears whole or not at all (see
/// AtomicFile). Throws UsageError, before anything is written, for a tensor that is undefined, sparse,
/// quantized or without data (meta), a dtype that the format has no name for, a name or metadata that is no
/// UTF-8, or a tensor called "__metadata__". Throws Error, naming the path and the system's reason, when
/// writing fails; an old file stays then. Returns the file's size and checksum.
FileDigest save_file(const TensorMap& tensors, const std::filesystem::path& path,
                     const TensorMetadata& metadata = {});

/// Reads a safetensors file into new CPU tensors. The file may come from anywhere: it is data, no code.
///
/// Everything that the header says is compared with the format and with the file's real size before a tensor
/// is allocated. Throws DataError, naming the file, the tensor and the numbers, for a file that cannot be
/// read or breaks the format: lengths that lie, JSON that is malformed, too deep or has a key twice, unknown
/// fields or dtypes (F4 and F6, which LibTorch cannot hold element by element, count as unknown), offsets
/// with a hole or an overlap, bytes missing or left over. *Local*; safe from several threads.
SafeTensors load_file(const std::filesystem::path& path);

}  // namespace lockstep
