#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::parallel {

/// Keeps the first name of each tensor: tied weights are trained once.
std::vector<NamedTensor> without_repeats(const std::vector<NamedTensor>& tensors);

/// What one rank is about to train.
struct Proposal {
  const std::vector<NamedTensor>& parameters;
  const std::vector<NamedTensor>& buffers;
  /// Options on which the ranks must agree, in words.
  std::string options;
  /// Why this rank cannot train at all, or "".
  std::string complaint;
};

/// Throws on every rank unless all ranks propose the same: names, dtypes and shapes in the same order, and
/// options. A rank with a complaint throws UsageError, and the others CommunicationError; of differences, all
/// throw CommunicationError, naming each differing tensor and who has what. *Collective*.
void check_agreement(const ProcessGroup& group, const Proposal& proposal);

/// Throws CommunicationError on every rank unless all ranks register a communication hook of this name.
/// *Collective*.
void check_same_hook(const ProcessGroup& group, const std::string& name);

}  // namespace lockstep::parallel
