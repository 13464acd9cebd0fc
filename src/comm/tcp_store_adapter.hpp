#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "net/store/client.hpp"
#include "net/store/server.hpp"

namespace lockstep::comm {

/// c10d's view of the job's store: a connection of our own to any server of TCPStore's protocol, be it ours
/// or PyTorch's. Unlike c10d's client it keeps to its deadlines against a server that says nothing, and
/// proves the job's secret.
///
/// Any thread may call any method; a call that waits holds the connection, as c10d's does, and a clone has a
/// connection of its own. Failures are c10d's: DistStoreError when the timeout passes, DistNetworkError when
/// the connection is lost.
///
/// Connects; throws net's errors. `hosted` is the server that this process runs for the others, if it does:
/// it lives as long as the store and its clones.
c10::intrusive_ptr<c10d::Store> make_tcp_store_adapter(std::vector<net::Address> addresses,
                                                       net::StoreClientOptions options,
                                                       std::chrono::milliseconds timeout,
                                                       std::shared_ptr<net::Server> hosted = nullptr);

}  // namespace lockstep::comm
