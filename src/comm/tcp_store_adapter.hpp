#pragma once

#include <chrono>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "net/store/client.hpp"
#include "net/store/server.hpp"

namespace lockstep::comm {

/// c10d's interface to the job's store: a connection to any server of TCPStore's protocol, Lockstep's or
/// PyTorch's. Unlike c10d's client, it keeps its deadlines if a server does not answer, and proves the job's
/// token.
///
/// Any thread may call any method. A call that waits occupies the connection, as in c10d; a clone has its own
/// connection. Failures are c10d's: DistStoreError on timeout, DistNetworkError if the connection is lost.
///
/// Connects; throws the errors of src/net. `hosted` is the server that this process runs for the others, if
/// any; it lives as long as the store and its clones.
c10::intrusive_ptr<c10d::Store> make_tcp_store_adapter(std::vector<net::Address> addresses,
                                                       net::StoreClientOptions options,
                                                       std::chrono::milliseconds timeout,
                                                       std::shared_ptr<net::Server> hosted = nullptr);

}  // namespace lockstep::comm
