#pragma once

#include <memory>
#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep::train {

/// The communication hook of GradientOptions::comm_hook and comm_wrapper; null for "no". Throws UsageError
/// for other names, and for a wrapper around what needs none.
std::shared_ptr<CommHook> comm_hook_by_name(const std::string& hook, const std::string& wrapper);

}  // namespace lockstep::train
