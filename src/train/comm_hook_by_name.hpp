#pragma once

#include <memory>
#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep::train {

/// The communication hook of AcceleratorOptions::comm_hook and comm_wrapper; null for "no". *Local*. Throws
/// UsageError, which lists the names, for another name or a wrapper around what it does not go around.
std::shared_ptr<CommHook> comm_hook_by_name(const std::string& hook, const std::string& wrapper);

}  // namespace lockstep::train
