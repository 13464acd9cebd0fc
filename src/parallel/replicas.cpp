#include "lockstep/parallel/replicas.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/flatten_dense_tensors.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

#include "core/first_line.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::parallel {

/// Identifies a tensor and its version.
struct Stamp {
  const void* tensor = nullptr;
  const void* data = nullptr;
  std::uint32_t version = 0;

  bool operator==(const Stamp&) const = default;
};

/// How often backward has reached a parameter through its replicas.
using Backwards = std::shared_ptr<std::atomic<std::uint64_t>>;

/// A parameter of a replica after it was copied.
struct CopiedParameter {
  Stamp source;
  Stamp own;
  std::uint64_t backwards = 0;
  bool source_had_gradient = false;
};

namespace {

/// Tensors are copied to another device in pieces of about this many bytes: PyTorch's size for such
/// broadcasts.
constexpr std::size_t kPieceBytes = 10 << 20;

/// Sums the gradients of one parameter's replicas, in their order.
struct AddReplicas : torch::autograd::Node {
  AddReplicas(const at::Tensor& parameter, Backwards count)
      : Node(torch::autograd::edge_list{torch::autograd::impl::gradient_edge(parameter)}),
        device(parameter.device()),
        backwards(std::move(count)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    ++*backwards;
    at::Tensor sum;
    for (const auto& gradient : gradients) {
      if (!gradient.defined()) continue;
      const at::Tensor here = gradient.to(device);
      sum = sum.defined() ? sum + here : here;
    }
    return {sum};
  }

  at::Device device;
  Backwards backwards;
};

/// Inference tensors have no version: they always count as changed.
Stamp stamp_of(const at::Tensor& tensor) {
  if (tensor.is_inference()) return {};
  return {tensor.unsafeGetTensorImpl(), tensor.const_data_ptr(),
          static_cast<std::uint32_t>(tensor._version())};
}

struct Pair {
  at::Tensor source;
  at::Tensor own;
};

/// Copies one piece through one buffer: one transfer per small tensor costs more than the bytes.
void copy_in_one(const std::vector<Pair>& piece) {
  std::vector<at::Tensor> sources, own;
  for (const auto& pair : piece) {
    sources.push_back(pair.source);
    own.push_back(pair.own);
  }
  const at::Tensor there = at::flatten_dense_tensors(sources).to(own.front().device());
  at::_foreach_copy_(own, at::unflatten_dense_tensors(there, own));
}

bool travel_together(const Pair& one, const Pair& other) {
  return one.source.scalar_type() == other.source.scalar_type() &&
         one.source.device() == other.source.device();
}

void copy(const std::vector<Pair>& changed) {
  std::vector<Pair> piece;
  std::size_t bytes = 0;
  const auto flush = [&] {
    if (!piece.empty()) copy_in_one(piece);
    piece.clear();
    bytes = 0;
  };
  for (const auto& pair : changed) {
    if (pair.source.device() == pair.own.device()) {
      pair.own.copy_(pair.source);
      continue;
    }
    if (!piece.empty() && (bytes >= kPieceBytes || !travel_together(piece.front(), pair))) flush();
    piece.push_back(pair);
    bytes += pair.source.nbytes();
  }
  flush();
}

void check_like(const NamedTensor& source, const NamedTensor& own, std::size_t replica) {
  if (source.name == own.name && source.tensor.sizes() == own.tensor.sizes() &&
      source.tensor.scalar_type() == own.tensor.scalar_type()) {
    return;
  }
  const auto described = [](const NamedTensor& entry) {
    return fmt::format("'{}' of shape [{}] and {}", entry.name, fmt::join(entry.tensor.sizes(), ", "),
                       c10::toString(entry.tensor.scalar_type()));
  };
  throw UsageError(fmt::format(
      "DataParallel: replica {} has {} where the module has {}: replicas must be built as the module is",
      replica + 1, described(own), described(source)));
}

void check_same_number(const char* what, std::size_t replica, std::size_t own, std::size_t source) {
  if (own == source) return;
  throw UsageError(fmt::format(
      "DataParallel: replica {} has {} {} and the module {}: replicas must be built as the module is",
      replica + 1, own, what, source));
}

/// Removes the edges of the last graph, which keep it alive.
void unlink(const std::vector<ReplicaLinks::Tensors>& replicas) {
  for (const auto& replica : replicas) {
    for (const auto& entry : replica.parameters) torch::autograd::impl::set_gradient_edge(entry.tensor, {});
  }
}

/// Whether a step may have changed the parameter without incrementing its version.
bool may_have_stepped(const CopiedParameter& now, const CopiedParameter& known) {
  return now.source_had_gradient || known.source_had_gradient || now.backwards != known.backwards;
}

CopiedParameter observe(const Pair& pair, const Backwards& backwards) {
  const bool has_gradient = pair.source.is_leaf() && pair.source.grad().defined();
  return {stamp_of(pair.source), stamp_of(pair.own), *backwards, has_gradient};
}

void copy_changed(std::vector<CopiedParameter>& known, const std::vector<Pair>& pairs,
                  const std::vector<Backwards>& backwards) {
  known.resize(pairs.size());
  std::vector<Pair> changed;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto now = observe(pairs[i], backwards[i]);
    const bool differs = now.source != known[i].source || now.own != known[i].own || now.source == Stamp();
    if (differs) {
      changed.push_back(pairs[i]);
    } else if (may_have_stepped(now, known[i])) {
      // It may be unchanged, and a graph may still need it: keep its version.
      changed.push_back({pairs[i].source, pairs[i].own.variable_data()});
    }
  }
  const at::NoGradGuard no_grad;
  copy(changed);
  for (std::size_t i = 0; i < pairs.size(); ++i) known[i] = observe(pairs[i], backwards[i]);
}

}  // namespace

struct ReplicaLinks::Impl {
  void count_from_now(std::size_t parameters) {
    while (backwards.size() < parameters)
      backwards.push_back(std::make_shared<std::atomic<std::uint64_t>>(0));
  }

  std::vector<std::vector<CopiedParameter>> of_replicas = {};
  /// Per parameter.
  std::vector<Backwards> backwards = {};
};

ReplicaLinks::ReplicaLinks() : impl_(std::make_unique<Impl>()) {}
ReplicaLinks::~ReplicaLinks() = default;
ReplicaLinks::ReplicaLinks(ReplicaLinks&&) noexcept = default;
ReplicaLinks& ReplicaLinks::operator=(ReplicaLinks&&) noexcept = default;

void ReplicaLinks::check_device(const Tensors& source, const at::Device& device) {
  for (const auto* list : {&source.parameters, &source.buffers}) {
    for (const auto& entry : *list) {
      if (entry.tensor.device() == device) continue;
      throw UsageError(fmt::format(
          "DataParallel: the module must be on the first device, {}, but '{}' is on {}. Move it there first.",
          device.str(), entry.name, entry.tensor.device().str()));
    }
  }
}

void ReplicaLinks::refresh(std::size_t replica, const Tensors& source, const Tensors& own) {
  check_same_number("parameters", replica, own.parameters.size(), source.parameters.size());
  check_same_number("buffers", replica, own.buffers.size(), source.buffers.size());
  std::vector<Pair> pairs;
  const auto add = [&](const NamedTensor& from, const NamedTensor& to) {
    check_like(from, to, replica);
    pairs.push_back({from.tensor, to.tensor});
  };
  for (std::size_t i = 0; i < own.parameters.size(); ++i) {
    // Gradients go to the source: a leaf would keep its own.
    if (own.parameters[i].tensor.is_leaf()) own.parameters[i].tensor.set_requires_grad(false);
    add(source.parameters[i], own.parameters[i]);
  }
  auto& all = impl_->of_replicas;
  if (all.size() <= replica) all.resize(replica + 1);
  impl_->count_from_now(pairs.size());
  copy_changed(all[replica], pairs, impl_->backwards);
  pairs.clear();
  for (std::size_t i = 0; i < own.buffers.size(); ++i) add(source.buffers[i], own.buffers[i]);
  const at::NoGradGuard no_grad;
  copy(pairs);
}

void ReplicaLinks::link(const Tensors& source, const std::vector<Tensors>& replicas) {
  unlink(replicas);
  if (!at::GradMode::is_enabled() || replicas.empty()) return;
  impl_->count_from_now(source.parameters.size());
  for (std::size_t i = 0; i < source.parameters.size(); ++i) {
    const at::Tensor& parameter = source.parameters[i].tensor;
    if (!parameter.requires_grad()) continue;
    auto node = std::make_shared<AddReplicas>(parameter, impl_->backwards[i]);
    for (const auto& replica : replicas) {
      at::Tensor own = replica.parameters[i].tensor;
      torch::autograd::create_gradient_edge(own, node);
    }
  }
}

void ReplicaLinks::forget() { impl_->of_replicas.clear(); }

void refuse_clone(const std::exception& reason) {
  throw UsageError(
      "DataParallel: the module cannot be copied: derive it (and its parts) from torch::nn::Cloneable, or "
      "give DataParallel a function that makes replicas. Its clone() said: " +
      first_line_of(reason.what()));
}

}  // namespace lockstep::parallel
