#include "lockstep/optim/zero_redundancy_optimizer.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flatten_dense_tensors.h>
#include <ATen/ops/unflatten_dense_tensors.h>
#include <fmt/format.h>
#include <torch/optim/lbfgs.h>
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "lockstep/core/error.hpp"
#include "optim/greedy_partition.hpp"
#include "optim/share_buckets.hpp"

namespace lockstep::optim {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::optim::Optimizer;

/// Number of rounds of buckets in flight: one is sent while one is stepped.
constexpr std::size_t kRoundsInFlight = 2;

std::uint64_t bytes_of(double mebibytes) {
  if (mebibytes > 0 && mebibytes < 1e6) return static_cast<std::uint64_t>(mebibytes * 1024 * 1024);
  throw UsageError(fmt::format(
      "ZeroRedundancyOptimizer: bucket_cap_mb must be above 0 and below 1e6, not {:f}", mebibytes));
}

std::unique_ptr<Optimizer> accepted(std::unique_ptr<Optimizer> inner) {
  if (inner == nullptr) throw UsageError("ZeroRedundancyOptimizer: expected an optimizer, but got none");
  if (dynamic_cast<torch::optim::LBFGS*>(inner.get()) == nullptr) return inner;
  throw UsageError(
      "ZeroRedundancyOptimizer: LBFGS keeps one state for all parameters, which cannot be sharded. Use it "
      "alone.");
}

std::vector<std::vector<std::int64_t>> elements_of(const Optimizer& optimizer) {
  std::vector<std::vector<std::int64_t>> elements;
  for (const auto& group : optimizer.param_groups()) {
    auto& numbers = elements.emplace_back();
    for (const auto& parameter : group.params()) numbers.push_back(parameter.numel());
  }
  return elements;
}

/// Text that must be equal on all ranks.
std::string description_of(const Optimizer& optimizer) {
  std::string text;
  for (const auto& group : optimizer.param_groups()) {
    text += "group";
    for (const auto& parameter : group.params())
      text += fmt::format(" {}[{}]", parameter.dtype().name(), fmt::join(parameter.sizes(), ", "));
    text += '\n';
  }
  return text;
}

void check_alike(const ProcessGroup& group, const Optimizer& optimizer) {
  const auto descriptions = group.all_gather_object(description_of(optimizer));
  const auto other = std::find_if(descriptions.begin(), descriptions.end(),
                                  [&](const auto& text) { return text != descriptions.front(); });
  if (other == descriptions.end()) return;
  throw CommunicationError(
      fmt::format("ZeroRedundancyOptimizer: the parameters of rank {} differ from rank 0's in number, shape, "
                  "dtype or order. Build the same model and the same groups on every rank.",
                  other - descriptions.begin()));
}

/// Restores the full lists of parameters on destruction.
class FullGroups {
 public:
  explicit FullGroups(Optimizer& optimizer) : optimizer_(optimizer) {
    for (auto& group : optimizer.param_groups()) full_.push_back(group.params());
  }
  ~FullGroups() { narrow_to(full_); }
  FullGroups(const FullGroups&) = delete;
  FullGroups& operator=(const FullGroups&) = delete;

  void narrow_to(const std::vector<Tensors>& by_group) {
    for (std::size_t g = 0; g < by_group.size(); ++g) optimizer_.param_groups()[g].params() = by_group[g];
  }

 private:
  Optimizer& optimizer_;
  std::vector<Tensors> full_;
};

void copy_options(const Optimizer& from, Optimizer& to) {
  for (std::size_t g = 0; g < to.param_groups().size(); ++g)
    to.param_groups()[g].set_options(from.param_groups()[g].options().clone());
}

}  // namespace

struct ZeroRedundancyOptimizer::Impl {
  Impl(std::unique_ptr<Optimizer> optimizer, const ProcessGroup& ranks, std::uint64_t cap)
      : inner(std::move(optimizer)), group(ranks) {
    const auto owners = greedy_partition(elements_of(*inner), group.size());
    for (int rank = 0; rank < group.size(); ++rank) {
      buckets.push_back(share_buckets(share_of(rank, owners), cap));
      rounds = std::max(rounds, buckets.back().size());
    }
    drop_foreign_state();
  }

  std::vector<Tensors> share_of(int rank, const std::vector<std::vector<int>>& owners) {
    std::vector<Tensors> share;
    for (std::size_t g = 0; g < owners.size(); ++g) {
      auto& own = share.emplace_back();
      for (std::size_t i = 0; i < owners[g].size(); ++i) {
        if (owners[g][i] != rank) continue;
        own.push_back(inner->param_groups()[g].params()[i]);
        owner.emplace(own.back().unsafeGetTensorImpl(), rank);
      }
    }
    return share;
  }

  void drop_foreign_state() {
    for (const auto& [parameter, rank] : owner) {
      if (rank != group.rank()) inner->state().erase(const_cast<void*>(parameter));
    }
  }

  /// Every rank steps its bucket of this round; then all are sent.
  std::vector<SentBucket> step_round(std::size_t round, FullGroups& groups) {
    const auto& own = buckets[static_cast<std::size_t>(group.rank())];
    if (round < own.size()) {
      groups.narrow_to(own[round].by_group);
      inner->step();
    }
    const at::NoGradGuard no_grad;
    std::vector<SentBucket> sent;
    for (std::size_t rank = 0; rank < buckets.size(); ++rank) {
      if (round < buckets[rank].size())
        sent.emplace_back(group, buckets[rank][round], static_cast<int>(rank));
    }
    return sent;
  }

  void step_all() {
    FullGroups groups(*inner);
    std::deque<std::vector<SentBucket>> in_flight;
    const auto finish_first = [&] {
      const at::NoGradGuard no_grad;
      for (auto& bucket : in_flight.front()) bucket.finish();
      in_flight.pop_front();
    };
    for (std::size_t round = 0; round < rounds; ++round) {
      if (in_flight.size() == kRoundsInFlight) finish_first();
      in_flight.push_back(step_round(round, groups));
    }
    while (!in_flight.empty()) finish_first();
  }

  std::unique_ptr<Optimizer> inner;
  ProcessGroup group;
  std::unordered_map<const void*, int> owner = {};
  /// Per rank.
  std::vector<std::vector<ShareBucket>> buckets = {};
  std::size_t rounds = 0;
};

ZeroRedundancyOptimizer::ZeroRedundancyOptimizer(std::unique_ptr<Optimizer> inner, const ProcessGroup& group,
                                                 const ZeroRedundancyOptions& options)
    : Optimizer((inner = accepted(std::move(inner)))->param_groups(), inner->defaults().clone()) {
  const auto cap = bytes_of(options.bucket_cap_mb);
  check_alike(group, *inner);
  impl_ = std::make_unique<Impl>(std::move(inner), group, cap);
}

ZeroRedundancyOptimizer::~ZeroRedundancyOptimizer() = default;

at::Tensor ZeroRedundancyOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  if (elements_of(*this) != elements_of(*impl_->inner)) {
    throw UsageError(
        "ZeroRedundancyOptimizer: parameters were added after its construction, which no rank owns. Make the "
        "optimizer for all parameters.");
  }
  copy_options(*this, *impl_->inner);
  if (impl_->group.size() == 1) {
    impl_->inner->step();
  } else {
    impl_->step_all();
  }
  return loss;
}

int ZeroRedundancyOptimizer::owner_of(const at::Tensor& parameter) const {
  const auto found = impl_->owner.find(parameter.unsafeGetTensorImpl());
  if (found != impl_->owner.end()) return found->second;
  throw UsageError("ZeroRedundancyOptimizer: the optimizer does not have this parameter");
}

const ProcessGroup& ZeroRedundancyOptimizer::process_group() const { return impl_->group; }

Optimizer& ZeroRedundancyOptimizer::local_optimizer() const { return *impl_->inner; }

void ZeroRedundancyOptimizer::take_over() {
  impl_->drop_foreign_state();
  copy_options(*impl_->inner, *this);
}

}  // namespace lockstep::optim
