#include <cstddef>
#include <cstdint>
#include <span>

#include "data/images/decode.hpp"
#include "lockstep/core/error.hpp"

/// The input: a byte for the region and the fraction of its size, and a JPEG or PNG file's bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::int64_t kMaxPixels = 1 << 18;
  const int choice = data[0];
  const auto region = [&](int width, int height) {
    const int left = choice % 3 * width / 4, top = choice / 3 % 3 * height / 4;
    return lockstep::images::Region{left, top, (width - left + 1) / 2, (height - top + 1) / 2,
                                    1 << (choice >> 6)};
  };
  try {
    const auto decoded = lockstep::images::decode(std::span(data + 1, size - 1), "fuzz", kMaxPixels, region);
    // Every byte of what is said to be the region can be read.
    volatile std::uint8_t sum = 0;
    for (int y = 0; y < decoded.view.height; ++y) {
      for (int x = 0; x < decoded.view.width; ++x)
        sum = sum + decoded.view.row(y)[x * lockstep::images::kPixelBytes];
    }
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
