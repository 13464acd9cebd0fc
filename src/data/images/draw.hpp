#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/random.hpp"
#include "data/images/decode.hpp"

namespace lockstep::images {

using Range = std::array<double, 2>;

/// torchvision's RandomResizedCrop.get_params: a window with `scale` of the area and a `ratio` of width to
/// height; after ten draws that do not fit, a center crop.
Region draw_resized_crop(int width, int height, const Range& scale, const Range& ratio, RandomBits& random);

/// torchvision's RandomErasing.get_params: a rectangle with `scale` of the area and a `ratio` of height to
/// width; nothing after ten draws that do not fit.
std::optional<Region> draw_erasing(int width, int height, const Range& scale, const Range& ratio,
                                   RandomBits& random);

/// A draw from the beta distribution with both parameters `alpha`, for torchvision's MixUp and CutMix.
double draw_beta(double alpha, RandomBits& random);

/// CutMix's rectangle: 1 - `lambda` of the area around a random point, clipped at the edges; may be empty.
Region draw_cutmix(int width, int height, double lambda, RandomBits& random);

}  // namespace lockstep::images
