#pragma once

namespace lockstep {

/// How pixels are weighted when an image is resized: Pillow's filters, which look at a wider part of an image
/// that becomes smaller (antialiasing).
enum class ImageFilter { bilinear, bicubic, lanczos, box, hamming };

}  // namespace lockstep
