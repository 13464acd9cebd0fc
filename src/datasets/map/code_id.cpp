#include "datasets/map/code_id.hpp"

#include <elf.h>
#include <fmt/core.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "core/text.hpp"
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

std::size_t round_to_words(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

/// The build id in the notes of a segment, as bytes; empty if there is none.
std::string id_among(const char* note, const char* end) {
  while (note + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const char* name = note + sizeof header;
    const char* text = name + round_to_words(header.n_namesz);
    note = text + round_to_words(header.n_descsz);
    if (note > end) break;
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return std::string(text, header.n_descsz);
  }
  return "";
}

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
  for (int i = 0; i < module->dlpi_phnum && search.build_id.empty(); ++i) {
    const auto& segment = module->dlpi_phdr[i];
    const auto* notes = reinterpret_cast<const char*>(module->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_NOTE) search.build_id = id_among(notes, notes + segment.p_memsz);
  }
  return 1;
}

Search module_of(const void* address) {
  Search search{.address = reinterpret_cast<std::uintptr_t>(address)};
  dl_iterate_phdr(look, &search);
  if (!search.found)
    throw Error("map: the function lies in no loaded module. Declare a version in MapOptions::version.");
  if (search.build_id.empty()) {
    search.build_id = default_hash_memory().of(std::filesystem::path(search.file));
  } else {
    search.build_id = format_hex(search.build_id);
  }
  return search;
}

}  // namespace

std::string build_id_of(const void* address) { return module_of(address).build_id; }

std::string code_id_of(const void* address) {
  const Search module = module_of(address);
  return fmt::format("{}+{:x}", module.build_id, module.address - module.base);
}

}  // namespace lockstep
