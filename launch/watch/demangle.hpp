#pragma once

#include <string>

namespace lockstep::launch {

/// A stack as write_interrupted_stack writes it, with C++ names as they stand in the source, and without
/// letters that would act on a terminal. *Local*.
std::string readable_stack(const std::string& text);

}  // namespace lockstep::launch
