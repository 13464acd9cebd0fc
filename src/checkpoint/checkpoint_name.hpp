#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// The step in a name that checkpoint_name() returned; empty for any other name.
std::optional<std::int64_t> step_in_name(const std::string& name);

}  // namespace lockstep
