#pragma once

#include <string>

namespace lockstep {

/// What tells one build of a program or library from another: the build id that the linker has put into the
/// module in which `address` lies, in hexadecimal; where it has put none, the content hash of the module's
/// file. Throws Error where neither is to be had. *Local*. Source: the note NT_GNU_BUILD_ID of elf(5).
std::string build_id_of(const void* address);

/// The same with the address's place in the module: what tells functions of one build apart.
std::string code_id_of(const void* address);

}  // namespace lockstep
