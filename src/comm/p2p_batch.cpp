#include "comm/p2p_batch.hpp"

#include <cstddef>
#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace lockstep::comm {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;

bool is_receive(const P2POp& operation) { return operation.op == P2POp::Op::irecv; }

WorkPointer start(c10d::Backend& backend, const P2POp& operation) {
  std::vector<at::Tensor> tensors{operation.tensor};
  return is_receive(operation) ? backend.recv(tensors, operation.peer, operation.tag)
                               : backend.send(tensors, operation.peer, operation.tag);
}

/// A coalesced operation returns no Work before the end. Without endCoalescing(), NCCL's group would stay
/// open for this thread's next calls.
WorkPointer start_coalesced(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  backend.startCoalescing();
  try {
    for (const auto& operation : operations) start(backend, operation);
  } catch (...) {
    const auto failure = std::current_exception();
    try {
      backend.endCoalescing();
    } catch (const std::exception&) {
    }
    std::rethrow_exception(failure);
  }
  return backend.endCoalescing();
}

std::vector<WorkPointer> start_each(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  std::vector<WorkPointer> works(operations.size());
  std::vector<WorkPointer> receives;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_receive(operations[i])) receives.push_back(works[i] = start(backend, operations[i]));
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (is_receive(operations[i])) continue;
    std::erase_if(receives, [](const WorkPointer& receive) { return receive->isCompleted(); });
    works[i] = start(backend, operations[i]);
  }
  return works;
}

}  // namespace

std::vector<WorkPointer> start_batch(c10d::Backend& backend, const std::vector<P2POp>& operations) {
  if (backend.supportsCoalescing()) return {start_coalesced(backend, operations)};
  return start_each(backend, operations);
}

}  // namespace lockstep::comm
