#include <array>
#include <cctype>
#include <string>

#include "lockstep/train/callbacks.hpp"

namespace lockstep {
namespace {

/// Dense TFLOPS of a device: of its tensor cores for 16-bit floats and for TF32, and of float32 without them.
/// A device without TF32 has float32's number there.
struct DevicePeak {
  /// Part of the device's name, as whole words. The first one that applies counts.
  const char* name;
  double half;
  double tf32;
  double single;
};

// From NVIDIA's data sheets, which are named beside each row. Where a sheet gives a number "with sparsity",
// half of it stands here.
constexpr std::array kDevicePeaks{
    // "GB200 NVL72", per GPU: 5,000 and 2,500 with sparsity.
    DevicePeak{"GB200", 2500, 1250, 80},
    // "HGX B200", per GPU: 4,500 and 2,200 with sparsity.
    DevicePeak{"B200", 2250, 1100, 75},
    // "H200 Tensor Core GPU", SXM: 1,979 and 989 with sparsity.
    DevicePeak{"H200", 989.4, 494.7, 67},
    // "GH200 Grace Hopper Superchip": its GPU is an H100 or H200.
    DevicePeak{"GH200", 989.4, 494.7, 67},
    // "H100 Tensor Core GPU", PCIe: 1,513 and 756 with sparsity.
    DevicePeak{"H100 PCIe", 756, 378, 51},
    // "H100 Tensor Core GPU", NVL, per GPU: 1,671 and 835 with sparsity.
    DevicePeak{"H100 NVL", 835, 417.5, 60},
    // "H100 Tensor Core GPU", SXM: 1,979 and 989 with sparsity. The H800 differs in NVLink and float64 only.
    DevicePeak{"H100", 989.4, 494.7, 67},
    DevicePeak{"H800", 989.4, 494.7, 67},
    // "A100 Tensor Core GPU". The A800 differs in NVLink only.
    DevicePeak{"A100", 312, 156, 19.5},
    DevicePeak{"A800", 312, 156, 19.5},
    // "A30 Tensor Core GPU".
    DevicePeak{"A30", 165, 82, 10.3},
    // "A10 Tensor Core GPU".
    DevicePeak{"A10", 125, 62.5, 31.2},
    // "A40".
    DevicePeak{"A40", 149.7, 74.8, 37.4},
    // "L40S".
    DevicePeak{"L40S", 362.05, 183, 91.6},
    // "L40".
    DevicePeak{"L40", 181.05, 90.5, 90.5},
    // "L4 Tensor Core GPU": 242 and 120 with sparsity.
    DevicePeak{"L4", 121, 60, 30.3},
    // "V100 Tensor Core GPU": without TF32.
    DevicePeak{"V100-PCIE", 112, 14, 14},
    DevicePeak{"V100", 125, 15.7, 15.7},
    // "T4": without TF32.
    DevicePeak{"T4", 65, 8.1, 8.1},
};

constexpr double kTera = 1e12;

/// Whether `text` contains `name` as whole words: "A10" is not in "A100".
bool contains_words(const std::string& text, const std::string& name) {
  for (auto start = text.find(name); start != std::string::npos; start = text.find(name, start + 1)) {
    const auto end = start + name.size();
    const bool begins = start == 0 || std::isalnum(static_cast<unsigned char>(text[start - 1])) == 0;
    if (begins && (end == text.size() || std::isalnum(static_cast<unsigned char>(text[end])) == 0))
      return true;
  }
  return false;
}

}  // namespace

double peak_flops(const std::string& device_name, MixedPrecision precision, bool tf32) {
  for (const auto& device : kDevicePeaks) {
    if (!contains_words(device_name, device.name)) continue;
    if (precision != MixedPrecision::no) return device.half * kTera;
    return (tf32 ? device.tf32 : device.single) * kTera;
  }
  return 0;
}

}  // namespace lockstep
