#pragma once

#include <string>

struct dl_phdr_info;

namespace lockstep {

/// The linker's build id of a loaded program or library, in hexadecimal; empty if it has none. For the
/// callbacks of dl_iterate_phdr(3). *Local*. Source: the note NT_GNU_BUILD_ID of elf(5).
std::string linker_build_id(const dl_phdr_info& module);

}  // namespace lockstep
