#include "checkpoint/safetensors_file.hpp"

#include <algorithm>

namespace lockstep::safetensors {
namespace {

constexpr std::size_t kHeaderLengthBytes = 8;

}  // namespace

Header read_header(InputFile& file, const std::string& name) {
  std::string first(std::min<std::uint64_t>(kHeaderLengthBytes, file.size()), '\0');
  file.read(first.data(), first.size());
  std::string json(checked_header_length(first, file.size(), name), '\0');
  file.read(json.data(), json.size());
  return parse_header(json, file.size() - kHeaderLengthBytes - json.size(), name);
}

File::File(const std::filesystem::path& path)
    : path_(path), file_(path), header_(read_header(file_, path.string())) {
  // The entries cover the data without gaps, so the largest end is the size of the data.
  std::uint64_t data_bytes = 0;
  for (const auto& entry : header_.entries) data_bytes = std::max(data_bytes, entry.end);
  data_begin_ = file_.size() - data_bytes;
}

void File::read(const Entry& entry, std::uint64_t offset, void* data, std::size_t bytes) const {
  file_.read_at(data_begin_ + entry.begin + offset, data, bytes);
}

}  // namespace lockstep::safetensors
