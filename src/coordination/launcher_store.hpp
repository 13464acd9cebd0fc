#pragma once

#include <memory>

#include "coordination/key_value_store.hpp"

namespace lockstep {

struct World;

/// The launcher's store over a connection of its own, for ranks without a process group. It is shared by the
/// threads of this process: waiting looks again and again instead of occupying it. Keys have a prefix per
/// restart; next_session() counts over all connections of this process. *Local*. Throws CommunicationError if
/// the store cannot be reached.
std::shared_ptr<KeyValueStore> connect_to_launcher_store(const World& world);

}  // namespace lockstep
