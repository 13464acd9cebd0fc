#pragma once

namespace lockstep {

/// The version of this library: "0.1.0". *Local*.
const char* version() noexcept;

}  // namespace lockstep
