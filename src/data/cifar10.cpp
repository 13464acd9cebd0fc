#include "lockstep/data/cifar10.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <string>

#include "core/input_file.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t kSide = 32;
constexpr std::int64_t kPixels = 3 * kSide * kSide;
constexpr std::int64_t kRecord = kPixels + 1;
constexpr std::int64_t kClasses = 10;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw DataError("'" + path.string() + "' is not a valid file of CIFAR-10's binary version: " + what + ".");
}

at::Tensor read_records(const std::filesystem::path& path) {
  InputFile file(path);
  const auto bytes = static_cast<std::int64_t>(file.size());
  if (bytes == 0 || bytes % kRecord != 0) {
    fail(path, fmt::format("its {} bytes are not records of {} bytes each", bytes, kRecord));
  }
  auto records = at::empty({bytes / kRecord, kRecord}, at::kByte);
  file.read(records.mutable_data_ptr(), static_cast<std::size_t>(bytes));
  return records;
}

void check_labels(const at::Tensor& records, const std::filesystem::path& path) {
  const auto* bytes = records.const_data_ptr<std::uint8_t>();
  for (std::int64_t record = 0; record < records.size(0); ++record) {
    const auto label = bytes[record * kRecord];
    if (label < kClasses) continue;
    fail(path, fmt::format("record {} (byte {}) has the label {}, but labels are from 0 to 9", record,
                           record * kRecord, label));
  }
}

}  // namespace

Batch read_cifar10(const std::filesystem::path& path) {
  const auto records = read_records(path);
  check_labels(records, path);
  return {{"image", records.narrow(1, 1, kPixels).reshape({-1, 3, kSide, kSide})},
          {"label", records.select(1, 0).to(at::kLong)}};
}

Batch read_cifar10(std::span<const std::filesystem::path> paths) {
  if (paths.empty()) throw UsageError("read_cifar10 was given no file.");
  std::vector<at::Tensor> images;
  std::vector<at::Tensor> labels;
  for (const auto& path : paths) {
    const auto batch = read_cifar10(path);
    images.push_back(batch["image"]);
    labels.push_back(batch["label"]);
  }
  return {{"image", at::cat(images)}, {"label", at::cat(labels)}};
}

}  // namespace lockstep
