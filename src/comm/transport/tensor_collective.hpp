#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/transport/transport.hpp"
#include "shm/collective.hpp"

namespace lockstep::comm {

/// A collective on tensors, with the tensors whose memory it names. Copies are collectives on the same
/// memory.
struct TensorCollective {
  shm::Operation operation = shm::Operation::barrier;
  shm::Elements elements{0, shm::Dtype::bytes};
  shm::Reduction reduction = shm::Reduction::none;
  int root = -1;
  at::Tensor own = {};
  std::vector<void*> of_ranks = {};
  std::vector<shm::Part> sent = {};
  std::vector<shm::Part> received = {};
  /// What `of_ranks`, `sent` and `received` point to.
  std::vector<at::Tensor> held = {};

  /// Points to this object.
  shm::Collective value() const {
    return {.operation = operation,
            .elements = elements,
            .reduction = reduction,
            .root = root,
            .own = own.defined() ? own.data_ptr() : nullptr,
            .of_ranks = of_ranks,
            .sent = sent,
            .received = received};
  }
  void operator()(Transport& transport) const { transport.run(value()); }
};

}  // namespace lockstep::comm
