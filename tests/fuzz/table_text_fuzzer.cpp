#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "datasets/readers/readers.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace {

/// A file without a name that holds these bytes, under the path by which this process reaches it.
class BytesAsFile {
 public:
  BytesAsFile(const std::uint8_t* data, std::size_t size) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    for (std::size_t done = 0; done < size;) {
      const auto count = ::write(file_.get(), data + done, size - done);
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  lockstep::net::FileDescriptor file_;
};

lockstep::ArrowDataset read(const std::string& path, bool json) {
  const lockstep::readers::TextFile file{path, path};
  return lockstep::readers::read_all([&](lockstep::readers::Types types) {
    return json ? lockstep::readers::json_rows(file, std::nullopt, types)
                : lockstep::readers::csv_rows(file, {}, std::nullopt, types);
  });
}

}  // namespace

/// The input: a byte that is odd for JSON and even for comma-separated values, and the file's bytes. What is
/// read can be shown.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const BytesAsFile file(data + 1, size - 1);
  try {
    const auto dataset = read(file.path(), data[0] % 2 == 1);
    for (std::int64_t row = 0; row < std::min<std::int64_t>(dataset.num_rows(), 64); ++row) {
      static_cast<void>(dataset.row(row).value().to_json());
    }
  } catch (const lockstep::Error&) {
  }
  return 0;
}
