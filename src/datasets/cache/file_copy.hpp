#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lockstep {

/// Copies a file to a new one and flushes it to disk (fsync). Returns the CRC-32C of the bytes read, or 0 if
/// the kernel copied them (`by_kernel`). `copied(bytes)` is called after each piece; an exception from it
/// ends the copy. Throws DataError if the source cannot be read, Error if the copy cannot be written.
/// *Local*.
std::uint32_t copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to, bool by_kernel,
                         const std::function<void(std::uint64_t bytes)>& copied);

}  // namespace lockstep
