#pragma once

#include <string>

namespace lockstep {

/// Identifies a build of a program or library: the linker's build id of the module that contains `address`,
/// in hexadecimal; without one, the content hash of the module's file. Throws Error if neither is available.
/// *Local*. Source: the note NT_GNU_BUILD_ID of elf(5).
std::string build_id_of(const void* address);

/// Same, with the offset of the address in the module, which identifies a function of a build.
std::string code_id_of(const void* address);

}  // namespace lockstep
