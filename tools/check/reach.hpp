#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/store.hpp"
#include "lockstep/core/world.hpp"

namespace check {

/// Tries a TCP connection from every rank to every other, before anything is built on them. Returns, at every
/// rank, a line for each that cannot be made: "rank 1 (node1) cannot reach rank 0 (node0) at 10.0.0.1:40001:
/// ...". *Collective*. Throws TimeoutError naming the rank that did not take part.
std::vector<std::string> unreachable_pairs(const lockstep::World& world, const lockstep::Store& store);

}  // namespace check
