#include <dlfcn.h>

#include <filesystem>
#include <string>

#include "arrow_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "parquet_library.hpp"
#include "readers.hpp"

namespace lockstep::readers {
namespace {

constexpr const char* kLibrary = "liblockstep_arrow.so";

/// The folder of the program or library that this code is in.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

[[noreturn]] void unavailable(const std::string& reason) {
  throw UsageError("reading Parquet needs Lockstep's Arrow library, which is not usable: " + reason +
                   ". Build Lockstep with Apache Arrow C++ (libarrow-dev and libparquet-dev, or the Python "
                   "package pyarrow "
                   "in the environment that LibTorch comes from), or convert the file once, in Python: "
                   "datasets.Dataset.from_parquet(FILE).save_to_disk(FOLDER).");
}

const ParquetLibrary* load() {
  // Beside this code, or where the loader looks: a test program links the code itself.
  void* library = dlopen((own_folder() / kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    library = dlopen((own_folder() / ".." / "lib" / kLibrary).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) unavailable(dlerror());
  using Entry = const ParquetLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(library, kParquetLibraryEntry));
  if (entry == nullptr) unavailable(std::string(kLibrary) + " has no entry '" + kParquetLibraryEntry + "'");
  const auto* found = entry();
  if (found->version != kParquetLibraryVersion) {
    unavailable(std::string(kLibrary) + " has interface version " + std::to_string(found->version) +
                ", expected " + std::to_string(kParquetLibraryVersion));
  }
  return found;
}

}  // namespace

ArrowDataset read_parquet(const std::filesystem::path& path) {
  // Its own errors for a file that there is not are better than the library's.
  static_cast<void>(InputFile(path));
  static const ParquetLibrary* const library = load();
  Buffer stream;
  std::string reason;
  if (!library->read(path.string(), stream, reason)) {
    throw DataError("'" + path.string() + "' cannot be read as Parquet: " + reason + ".");
  }
  return read_arrow_bytes(std::move(stream), path.string());
}

}  // namespace lockstep::readers
