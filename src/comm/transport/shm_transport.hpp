#pragma once

#include <memory>

#include "comm/transport/transport.hpp"
#include "shm/hierarchy.hpp"

namespace lockstep::comm {

/// For ranks that all share memory. They verify every call in the first step of the operation itself.
std::unique_ptr<Transport> make_shm_transport(std::shared_ptr<shm::Group> group);

/// For ranks on several hosts: shared memory within each, and between them what `hierarchy` has. `flat` joins
/// all ranks; it carries messages, and what a rank gives each other rank for itself (gather, scatter,
/// all_to_all). Every call is verified by the hierarchy.
std::unique_ptr<Transport> make_hierarchical_transport(std::shared_ptr<shm::Group> group,
                                                       std::unique_ptr<shm::Hierarchy> hierarchy,
                                                       std::unique_ptr<Transport> flat);

}  // namespace lockstep::comm
