#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "call_exchange.hpp"
#include "failure_note.hpp"
#include "shm/inter_host_transport.hpp"

namespace lockstep::comm {

struct LanePlace {
  CallExchange::Names names;  // Of the ranks that it joins: "rank 0 on node0".
  int ranks = 1;              // Of the whole group: averages are over them.
  bool compares = true;       // What the hosts call.
};

/// One rank of each host joined by Gloo. `gloo`: a backend that nobody else uses, whose ranks are the hosts.
///
/// float16 and bfloat16 cross as they are and are rounded at each host; int16, which Gloo does not know,
/// crosses as int32; a bool as a byte.
std::unique_ptr<shm::InterHostTransport> make_gloo_transport(c10::intrusive_ptr<c10d::Backend> gloo,
                                                             LanePlace place, FailureNote note);

}  // namespace lockstep::comm
