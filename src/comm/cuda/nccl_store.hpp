#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/store.hpp"

namespace lockstep::comm {

/// `store` as one whose keys all lie under its prefix. c10d unwraps a PrefixStore for what concerns all of a
/// job, such as its signal to dump and end ("exception_dump"): in the store of an agent that restarts the job
/// that key would stay, and end the next attempt as soon as it begins.
c10::intrusive_ptr<c10d::Store> rooted(const Store& store);

}  // namespace lockstep::comm
