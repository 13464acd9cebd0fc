#include "datasets/map/code_id.hpp"

#include <fmt/core.h>
#include <link.h>

#include <cstdint>
#include <filesystem>

#include "core/build_id.hpp"
#include "datasets/table/content_hash.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

struct Search {
  std::uintptr_t address;
  bool found = false;
  std::string build_id = {};
  std::string file = {};
  std::uintptr_t base = 0;
};

bool holds(const dl_phdr_info& module, std::uintptr_t address) {
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& segment = module.dlpi_phdr[i];
    const std::uintptr_t begin = module.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address - begin < segment.p_memsz) return true;
  }
  return false;
}

int look(dl_phdr_info* module, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  if (!holds(*module, search.address)) return 0;
  search.found = true;
  search.base = module->dlpi_addr;
  // The program itself has an empty name.
  search.file = *module->dlpi_name == '\0' ? "/proc/self/exe" : module->dlpi_name;
  search.build_id = linker_build_id(*module);
  return 1;
}

Search module_of(const void* address) {
  Search search{.address = reinterpret_cast<std::uintptr_t>(address)};
  dl_iterate_phdr(look, &search);
  if (!search.found)
    throw Error("map: the function lies in no loaded module. Declare a version in MapOptions::version.");
  if (search.build_id.empty()) search.build_id = default_hash_memory().of(std::filesystem::path(search.file));
  return search;
}

}  // namespace

std::string build_id_of(const void* address) { return module_of(address).build_id; }

std::string code_id_of(const void* address) {
  const Search module = module_of(address);
  return fmt::format("{}+{:x}", module.build_id, module.address - module.base);
}

}  // namespace lockstep
