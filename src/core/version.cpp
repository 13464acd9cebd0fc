#include "lockstep/core/version.hpp"

namespace lockstep {

const char* version() noexcept { return LOCKSTEP_VERSION; }

}  // namespace lockstep
