#pragma once

#include <memory>

#include "comm/transport/transport.hpp"

namespace lockstep::comm {

/// For ranks that all share memory. Calls are verified in the first step of each operation.
std::unique_ptr<Transport> shm_transport(std::shared_ptr<shm::Group> group);

}  // namespace lockstep::comm
