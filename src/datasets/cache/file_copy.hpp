#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lockstep {

/// Copies a file to a new one and brings it to the disk. Returns the CRC-32C of what was read, where the
/// bytes went through this process; nothing where the file systems copied among themselves (`by_kernel`).
/// `copied(bytes)` is told of each piece, and ends the copying by an exception of its own. Throws DataError
/// when the source cannot be read, Error when the copy cannot be written. *Local*.
std::uint32_t copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to, bool by_kernel,
                         const std::function<void(std::uint64_t bytes)>& copied);

}  // namespace lockstep
