#include "core/build_id.hpp"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>

#include "core/text.hpp"

namespace lockstep {
namespace {

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

}  // namespace

std::string linker_build_id(const dl_phdr_info& module) {
  std::string id;
  for (int i = 0; i < module.dlpi_phnum && id.empty(); ++i) {
    const auto& segment = module.dlpi_phdr[i];
    const auto* notes = reinterpret_cast<const char*>(module.dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_NOTE) id = id_among(notes, notes + segment.p_memsz);
  }
  return format_hex(id);
}

}  // namespace lockstep
