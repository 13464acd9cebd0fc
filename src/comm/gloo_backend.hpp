#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "call_exchange.hpp"
#include "lockstep/comm/process_group.hpp"

namespace lockstep::comm {

/// Gloo over TCP for `size` ranks. `address` is this rank's own address on the network of the job; empty
/// means that all ranks are on this host. `compared`: what an observer tells of its collectives
/// (ComparesCalls) is compared before data moves. *Collective*.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                    int size, const ProcessGroupOptions& options,
                                                    const std::string& address,
                                                    const CallExchange::Names* compared = nullptr);

}  // namespace lockstep::comm
