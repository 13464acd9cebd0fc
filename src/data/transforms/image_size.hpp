#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/data/image_transforms.hpp"

namespace lockstep {

inline bool is_given(const ImageSize& size) { return size.height != 0 || size.width != 0; }

inline std::string describe_size(const ImageSize& size) { return fmt::format("{} x {}", size.height, size.width); }

/// Throws UsageError if a size is given and a side is not 1 to 2^`power`; `name` is the option's name.
inline void check_image_size(const std::string& name, const ImageSize& size, int power) {
  const auto fits = [&](std::int64_t side) { return side > 0 && side <= std::int64_t{1} << power; };
  if (!is_given(size) || (fits(size.height) && fits(size.width))) return;
  throw UsageError(fmt::format("{} must be 1 to 2^{} pixels a side, but is {}.", name, power, describe_size(size)));
}

}  // namespace lockstep
