#include "cli/library_facts.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "liblockstep.so";

/// The file to load: an installation's, a build folder's, or the bare name for the system to find.
std::string library_file() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  for (const char* folder : {LOCKSTEP_LIBRARY_FOLDER, "lib"}) {
    const fs::path file = prefix / folder / kLibrary;
    if (fs::exists(file)) return file;
  }
  return kLibrary;
}

Facts failure() { return {{"library", std::string("not loaded: ") + ::dlerror()}}; }

}  // namespace

Facts library_facts() {
  void* library = ::dlopen(library_file().c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return failure();
  using Entry = const char* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, "lockstep_library_facts"));
  if (entry == nullptr) return failure();
  Facts facts;
  for (const auto& fact : nlohmann::json::parse(entry())) facts.emplace_back(fact.at(0), fact.at(1));
  // Stays loaded: LibTorch's threads and exit handlers do not survive being unloaded.
  return facts;
}

}  // namespace lockstep::launch
