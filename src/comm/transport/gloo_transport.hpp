#pragma once

#include <memory>
#include <string>

#include "comm/store_session.hpp"
#include "comm/transport/fingerprint_exchange.hpp"
#include "comm/transport/gloo_connection.hpp"
#include "comm/transport/transport.hpp"
#include "shm/inter_host_transport.hpp"

namespace lockstep::comm {

/// The collectives by Gloo alone. `fingerprints`: of the same ranks, which verify each call before its data
/// moves; null: they do not.
std::unique_ptr<Transport> make_gloo_transport(std::unique_ptr<GlooConnection> connection,
                                               std::unique_ptr<FingerprintExchange> fingerprints);

/// A rank that carries its host's values to other hosts.
struct InterHostPlace {
  FingerprintExchange::Names names;  // Of the ranks that are joined: "rank 0 on node0".
  int ranks = 1;                     // Of the whole group: averages are over them.
};

/// One rank of each host joined by Gloo: the ranks of `connection` and `fingerprints` are the hosts.
std::unique_ptr<shm::InterHostTransport> make_gloo_inter_host_transport(
    std::unique_ptr<GlooConnection> connection, std::unique_ptr<FingerprintExchange> fingerprints,
    InterHostPlace place, FirstFailure failure);

}  // namespace lockstep::comm
