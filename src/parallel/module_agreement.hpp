#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// Keeps the first name of each tensor: tied weights are trained once.
std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors);

/// The model that one rank is about to train.
struct Proposal {
  const std::vector<NamedTensor>& parameters;
  const std::vector<NamedTensor>& buffers;
  /// Text of the options on which the ranks must agree.
  std::string options;
  /// Why this rank cannot train, or "".
  std::string complaint;
};

/// Throws on every rank unless all ranks propose the same names, dtypes and shapes in the same order, and the
/// same options. A rank with a complaint throws UsageError, the others CommunicationError. If proposals
/// differ, all throw CommunicationError, which names each differing tensor and its ranks. *Collective*.
void check_agreement(const ProcessGroup& group, const Proposal& proposal);

/// Throws CommunicationError on every rank unless all ranks register a communication hook of this name.
/// *Collective*.
void check_same_hook(const ProcessGroup& group, const std::string& name);

}  // namespace lockstep::parallel
