#include "bucket_tuner.hpp"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "../comm/c10d_handles.hpp"
#include "comm/transport/shared_allocation.hpp"

namespace lockstep::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBackwards = 3;
constexpr int kTries = 5;
constexpr std::size_t kSmallMessage = 64U << 10;
constexpr std::size_t kLargeMessage = 4U << 20;
/// What a bucket costs beside its message: the reducer, LibTorch's dispatcher, the worker thread's waking.
constexpr double kSecondsPerBucket = 30e-6;

double seconds_of_message(const ProcessGroup& group, std::size_t bytes) {
  const at::Tensor message = [&] {
    const comm::SharedAllocation as_buckets_are(group);
    return at::zeros({static_cast<std::int64_t>(bytes / sizeof(float))});
  }();
  group.all_reduce(message);  // The memory is touched, and all ranks are here.
  std::vector<double> seconds;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = Clock::now();
    group.all_reduce(message);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kTries / 2, seconds.end());
  return seconds[kTries / 2];
}

/// From two messages. *Collective*.
CommunicationCost measured_cost(const ProcessGroup& group) {
  const double small = seconds_of_message(group, kSmallMessage);
  const double large = seconds_of_message(group, kLargeMessage);
  const double per_byte = std::max(0.0, large - small) / static_cast<double>(kLargeMessage - kSmallMessage);
  const double per_call = std::max(0.0, small - per_byte * static_cast<double>(kSmallMessage));
  return {per_call + kSecondsPerBucket, per_byte};
}

bool are_alike(const std::vector<NamedTensor>& parameters) {
  return std::all_of(parameters.begin(), parameters.end(), [&](const NamedTensor& entry) {
    return entry.tensor.is_cpu() && entry.tensor.scalar_type() == parameters.front().tensor.scalar_type();
  });
}

}  // namespace

bool sums_depend_on_buckets(const ProcessGroup& group) {
  const auto c10d = comm::to_intrusive(group.c10d_process_group());
  return group.size() > 2 && c10d->getBackend(c10::kCPU)->getBackendName() != "shm";
}

bool sizes_are_measured(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                        const DistributedDataParallelOptions& options) {
  if (options.find_unused_parameters || options.static_graph || !options.sparse_parameters.empty() ||
      !are_alike(parameters))
    return false;
  if (options.bucket_sizes != BucketSizes::automatic) return options.bucket_sizes == BucketSizes::measured;
  return options.bucket_cap_mb == DistributedDataParallelOptions{}.bucket_cap_mb &&
         !sums_depend_on_buckets(group);
}

BucketTuner::BucketTuner(const std::vector<NamedTensor>& parameters, const ProcessGroup& group,
                         std::size_t most_bytes)
    : parameters_(parameters), group_(group), most_bytes_(most_bytes), sums_(parameters.size()) {}

bool BucketTuner::step() {
  if (clock_ == nullptr) {
    clock_ = std::make_unique<ArrivalClock>(parameters_);
    return false;
  }
  take_arrivals();
  if (++backwards_ < kBackwards) return false;
  clock_.reset();
  const auto arrivals = mean_arrivals();
  if (arrivals.empty()) return true;
  const CommunicationCost cost = measured_cost(group_);
  nlohmann::json layout;
  if (group_.rank() == 0) layout = layout_for(arrivals, cost);
  layout_ = group_.broadcast_object(layout).get<BucketLayout>();
  return true;
}

bool BucketTuner::all_are_trained() const {
  return std::all_of(parameters_.begin(), parameters_.end(),
                     [](const NamedTensor& entry) { return entry.tensor.requires_grad(); });
}

void BucketTuner::take_arrivals() {
  const auto arrivals = clock_->arrivals();
  clock_->reset();
  if (!arrivals) return;
  ++complete_;
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += (*arrivals)[i];
}

std::vector<double> BucketTuner::mean_arrivals() const {
  std::vector<double> values = sums_;
  for (double& value : values) value /= std::max(complete_, 1) * group_.size();
  values.push_back(complete_ > 0 && all_are_trained() ? 1 : 0);
  group_.all_reduce(at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}, at::kDouble));
  const bool all_have_seen = values.back() == group_.size();
  values.pop_back();
  return all_have_seen ? values : std::vector<double>();
}

BucketLayout BucketTuner::layout_for(const std::vector<double>& arrivals, CommunicationCost cost) const {
  std::vector<std::size_t> order(arrivals.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return arrivals[a] < arrivals[b]; });
  std::vector<GradientArrival> gradients;
  for (const auto i : order) gradients.push_back({arrivals[i], parameters_[i].tensor.nbytes()});
  BucketLayout layout;
  auto next = order.begin();
  for (const auto count : plan_buckets(gradients, cost, most_bytes_)) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    layout.emplace_back(next, end);
    next = end;
  }
  return layout;
}

}  // namespace lockstep::parallel
