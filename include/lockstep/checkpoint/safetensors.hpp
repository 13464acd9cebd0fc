#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

#include "lockstep/core/atomic_file.hpp"

namespace lockstep {

/// Tensors by name, in the byte order of the names.
using TensorMap = std::map<std::string, at::Tensor>;

/// Texts by name, stored with the tensors of a file.
using TensorMetadata = std::map<std::string, std::string>;

/// The content of a safetensors file.
struct SafeTensors {
  TensorMap tensors;
  TensorMetadata metadata;
};

/// Writes tensors to a safetensors file (github.com/huggingface/safetensors), which Python and Rust can read.
///
/// The bytes are those of Python's `safetensors.torch.save_file` for the same tensors and metadata, except
/// that Python writes several metadata keys in random order, and this function sorts them. Empty metadata is
/// omitted, as in Python with None.
///
/// Tensors may be on any device, need not be contiguous, and may require gradients; copies are made one
/// tensor at a time, if needed. Names that share storage are written once per name (Python rejects them); to
/// write them once, remove the other names first. Dtypes: float64, float32, float16, bfloat16, signed and
/// unsigned integers, bool, complex64, and the one-byte float8 dtypes.
///
/// *Local*: in a job of several ranks, one rank calls it. The file appears complete or not at all (see
/// AtomicFile). Throws UsageError, before anything is written, if a tensor is undefined, sparse, quantized or
/// without data (meta), if the format does not have its dtype, if a name or metadata is not UTF-8, or if a
/// tensor is called "__metadata__". Throws Error, with the path and the system's reason, if writing fails; an
/// old file is then kept. Returns the file's size and checksum.
FileDigest save_file(const TensorMap& tensors, const std::filesystem::path& path,
                     const TensorMetadata& metadata = {});

/// Reads a safetensors file into new CPU tensors. The file need not be trusted: it contains data and no code.
///
/// Everything in the header is validated against the format and the file's actual size before a tensor is
/// allocated. Throws DataError, with the file, the tensor and the numbers, if the file cannot be read or is
/// invalid: wrong lengths, JSON that is malformed, too deeply nested or has duplicate keys, unknown fields or
/// dtypes (including F4 and F6, which LibTorch cannot store element by element), offsets with gaps or
/// overlaps, missing or extra bytes. *Local*; may be called from several threads.
SafeTensors load_file(const std::filesystem::path& path);

}  // namespace lockstep
