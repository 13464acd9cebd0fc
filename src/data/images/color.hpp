#pragma once

#include "data/images/pixels.hpp"

namespace lockstep::images {

/// torchvision's adjust_brightness, _contrast, _saturation and _hue for a Pillow image, in place and bit for
/// bit. A factor of 1 changes nothing; `shift` is from -0.5 to 0.5, as a fraction of the hue circle. Pure.
void adjust_brightness(Pixels& pixels, double factor);
void adjust_contrast(Pixels& pixels, double factor);
void adjust_saturation(Pixels& pixels, double factor);
void adjust_hue(Pixels& pixels, double shift);

}  // namespace lockstep::images
