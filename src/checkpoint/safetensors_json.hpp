#pragma once

#include <string>
#include <string_view>

#include "checkpoint/safetensors_header.hpp"

namespace lockstep::safetensors {

/// Parses a header's JSON and checks its structure, but not its numbers. Throws DataError. Not recursive, so
/// that deep nesting cannot exhaust the stack.
Header read_json(std::string_view json, const std::string& file);

/// The JSON of a header, byte for byte as in the reference implementation. The text must be UTF-8.
std::string write_json(const Header& header);

}  // namespace lockstep::safetensors
