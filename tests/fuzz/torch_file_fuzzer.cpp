#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "checkpoint/torch_file.hpp"
#include "lockstep/core/error.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

/// Every tensor of an accepted file is within the file.
void check_promises(const lockstep::TorchFile& file, std::size_t bytes) {
  std::vector<char> values;
  for (const auto& [name, tensor] : file.tensors()) {
    require(tensor.elements <= bytes / tensor.element_bytes);
    require(tensor.begin <= bytes && tensor.elements * tensor.element_bytes <= bytes - tensor.begin);
    require(tensor.sizes.size() == tensor.strides.size());
    values.resize(tensor.elements * tensor.element_bytes);
    file.read(tensor, values.data());
  }
}

}  // namespace

/// The input is a whole file.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int descriptor = ::memfd_create("torch_file", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  require(::ftruncate(descriptor, 0) == 0 &&
          ::pwrite(descriptor, data, size, 0) == static_cast<ssize_t>(size));
  try {
    check_promises(lockstep::TorchFile(path), size);
  } catch (const lockstep::DataError&) {
  }
  return 0;
}
