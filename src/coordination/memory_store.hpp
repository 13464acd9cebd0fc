#pragma once

#include <memory>
#include <vector>

#include "coordination/key_value_store.hpp"

namespace lockstep {

/// A store in this process's memory for ranks that are threads: one handle per rank of `count`. A thread that
/// waits does not hold up others.
std::vector<std::shared_ptr<KeyValueStore>> in_process_stores(int count);

}  // namespace lockstep
