#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/images/decode.hpp"

namespace lockstep::images {

/// decode() of a PNG file.
Decoded decode_png(std::span<const std::uint8_t> bytes, const std::string& name, std::int64_t max_pixels,
                   const ChooseRegion& choose);

}  // namespace lockstep::images
