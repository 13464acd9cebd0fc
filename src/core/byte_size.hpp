#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Parses a number of bytes: "20000000000", "20G", "512M"; K, M, G and T are powers of 1024. Nothing for
/// other text.
std::optional<std::uint64_t> parse_bytes(const std::string& text);
/// Human-readable: "1.2 GiB".
std::string bytes_text(std::uint64_t bytes);

}  // namespace lockstep
