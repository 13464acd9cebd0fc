#pragma once

#include <string>

namespace lockstep::launch {

/// A stack as ranks write it (glibc's form), for people: C++ names as they stand in the source, files without
/// folders, no addresses, and no letters that would act on a terminal. *Local*.
std::string readable_stack(const std::string& text);

}  // namespace lockstep::launch
