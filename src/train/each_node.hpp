#pragma once

#include <filesystem>
#include <functional>

#include "lockstep/train/accelerator.hpp"

namespace lockstep::train {

/// Whether this rank writes what is kept on each node: rank 0, and the first rank of each other node that
/// does not see rank 0's files at `folder`, which a probe tells. Makes the folder where needed. *Collective*.
bool writes_for_its_node(const Accelerator& accelerator, const std::filesystem::path& folder);

/// Runs `action` on the ranks that `takes_part`. An exception of any of them reaches all, with the rank.
/// *Collective*.
void run_on_writers(const Accelerator& accelerator, bool takes_part, const std::function<void()>& action);

}  // namespace lockstep::train
