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
  /// The memory of trained parameters, and not only the values of their elements, must correspond between the
  /// ranks, as in the buckets of a reducer: their strides are compared too.
  bool buckets_follow_strides = false;
};

/// Gives a tensor whose elements share memory (an expanded one) memory of its own, so that it can be written.
void separate_elements(const at::Tensor& tensor);

/// Copies rank `root`'s values to the other ranks, element by element, whatever their strides. *Collective*.
void copy_values(const ProcessGroup& group, const at::Tensor& tensor, int root = 0);

/// Throws on every rank unless all ranks propose the same names, dtypes and shapes (and strides, if they
/// matter) in the same order, and the same options. A rank with a complaint throws UsageError, the others
/// CommunicationError. If proposals differ, all throw CommunicationError, which names each differing tensor
/// and its ranks. *Collective*.
void check_agreement(const ProcessGroup& group, const Proposal& proposal);

/// Throws CommunicationError on every rank unless all ranks register a communication hook of this name.
/// *Collective*.
void check_same_hook(const ProcessGroup& group, const std::string& name);

}  // namespace lockstep::parallel
