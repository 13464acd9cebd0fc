#pragma once

#include <optional>
#include <string>

namespace lockstep::launch {

/// Reads one element of a tensor of this dtype ("F32") as a number; nothing for the kinds that have no single
/// number or are too rare (complex, float8).
using ElementReader = double (*)(const char* bytes);
std::optional<ElementReader> element_reader(const std::string& dtype);

}  // namespace lockstep::launch
