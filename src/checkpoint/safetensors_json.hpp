#pragma once

#include <string>
#include <string_view>

#include "safetensors_header.hpp"

namespace lockstep::safetensors {

/// The JSON of a header as it stands: right in its form, its numbers not yet compared with anything. Throws
/// DataError. Reads without recursion, so that deep nesting cannot exhaust the stack.
Header read_json(std::string_view json, const std::string& file);

/// The JSON of a header, bytes as the reference implementation writes them. The text must be UTF-8.
std::string write_json(const Header& header);

}  // namespace lockstep::safetensors
