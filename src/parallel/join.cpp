#include "parallel/join.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>
#include <torch/csrc/autograd/engine.h>
#include <algorithm>

#include "comm/c10d_handles.hpp"
#include "lockstep/core/error.hpp"
#include "parallel/module_agreement.hpp"

namespace lockstep {
namespace {

/// What a rank is about to do, in ascending order.
enum Presence : std::int64_t { kThrough, kForwardOnly, kBackwardAlone, kBackward };

/// The number of every rank, in rank order. *Collective*.
std::vector<std::int64_t> exchange(const ProcessGroup& group, std::int64_t mine) {
  const auto numbers = at::TensorOptions(group.object_device()).dtype(at::kLong);
  at::Tensor all = at::empty({group.size()}, numbers);
  group.all_gather_into_tensor(all, at::full({1}, mine, numbers));
  all = all.to(at::kCPU);
  return {all.const_data_ptr<std::int64_t>(), all.const_data_ptr<std::int64_t>() + all.numel()};
}

/// The last rank whose number is not 0; -1 if all are 0.
int last_of(const std::vector<std::int64_t>& presences) {
  const auto found =
      std::find_if(presences.rbegin(), presences.rend(), [](auto presence) { return presence != 0; });
  return static_cast<int>(presences.rend() - found) - 1;
}

bool has(const std::vector<std::int64_t>& presences, Presence presence) {
  return std::find(presences.begin(), presences.end(), presence) != presences.end();
}

std::string ranks_that(const std::vector<std::int64_t>& presences, Presence presence) {
  std::string ranks;
  for (std::size_t rank = 0; rank < presences.size(); ++rank) {
    if (presences[rank] == presence) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", rank);
  }
  return ranks;
}

/// The collectives of a backward are those of all ranks.
void check_windows(const DdpState& state, const std::vector<std::int64_t>& presences) {
  if (!has(presences, kBackwardAlone) || !has(presences, kBackward)) return;
  throw UsageError(fmt::format(
      "{}: in join, these ranks synchronize the gradients of their batch: {}, and these accumulate "
      "theirs without: {}. All ranks must end their accumulation windows with the same batch: drop "
      "the last batches of a rank that do not fill a window, or do not accumulate",
      describe(state.group), ranks_that(presences, kBackward), ranks_that(presences, kBackwardAlone)));
}

void check_presences(const DdpState& state, const std::vector<std::int64_t>& presences) {
  check_windows(state, presences);
  // The reducer's first backward of a static graph has collectives of its own.
  const bool first = state.learns_graph() && has(presences, kBackward);
  if (!state.join->options.throw_on_early_termination && !first) return;
  if (!has(presences, kThrough)) return;
  throw Error(
      fmt::format("{}: these ranks have no more batches while others have: {}{}", describe(state.group),
                  ranks_that(presences, kThrough),
                  first ? ". With static_graph every rank needs a batch for the first backward" : ""));
}

/// The number of ranks that still have batches, in the form that the reducer expects.
class CountWork : public c10d::Work {
 public:
  explicit CountWork(int count)
      : future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(std::vector<at::Tensor>{at::full({1}, count, at::kInt)});
  }
  bool isCompleted() override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

void set_divisor(DdpState& state, const std::vector<std::int64_t>& presences) {
  if (state.join->options.divide_by_initial_world_size) return;
  const auto active =
      presences.size() - static_cast<std::size_t>(std::count(presences.begin(), presences.end(), kThrough));
  state.mean->set_divisor(static_cast<int>(active));
  state.reducer->set_forward_pass_work_handle(c10::make_intrusive<CountWork>(static_cast<int>(active)),
                                              /*useStaticWorldSize=*/false);
}

/// Communicates what the others' backward does, with zeros and in the same order.
void shadow_backward(DdpState& state) {
  auto buckets = state.reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  state.backward_begins();
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> sent;
  for (auto& bucket : buckets) sent.push_back(state.reducer->run_comm_hook(bucket));
  if (state.options.find_unused_parameters && !state.options.static_graph) {
    std::vector<at::Tensor> map{state.reducer->get_local_used_map_on_device()};
    sent.push_back(comm::to_intrusive(state.group.c10d_process_group())->allreduce(map)->getFuture());
  }
  for (auto& future : sent) future->wait();
  if (state.hook_runner != nullptr) {
    for (std::size_t index = 0; index < buckets.size(); ++index) state.hook_runner->finish(index);
    state.hook_runner->after_backward();
  }
  state.reducer->push_rebuilt_params_for_all_indices();
}

/// Takes part in one step of the other ranks; false if all have finished.
bool shadow_step(DdpState& state, const std::function<std::vector<NamedTensor>()>& buffers) {
  const auto presences = exchange(state.group, kThrough);
  const std::int64_t most = *std::max_element(presences.begin(), presences.end());
  if (most == kThrough) return false;
  check_presences(state, presences);
  if (most >= kBackwardAlone) state.rebuild_buckets();
  if (state.has_buffers && state.options.broadcast_buffers && state.buffers_are_due)
    state.broadcast(parallel::without_repeats(buffers()), last_of(presences));
  state.buffers_are_due = most == kBackward;
  if (most == kBackward) {
    state.watch.step(std::nullopt, /*compares=*/false);
    shadow_backward(state);
  }
  return true;
}

void check_joinable(const DdpState& state) {
  if (!state.options.sparse_parameters.empty())
    throw UsageError(
        "join: gradients of zero can stand for dense ones only, and there are sparse_parameters");
  if (state.applies_in_backward)
    throw UsageError(
        "join: a rank without batches must not step, so gradients cannot be applied in backward");
}

/// Also ends the join if the body throws.
struct JoinScope {
  JoinScope(DdpState& ddp, const JoinOptions& options) : state(ddp) { state.join = JoinState{options, 0}; }
  ~JoinScope() {
    state.join.reset();
    state.mean->set_divisor(state.group.size());
    state.reducer->set_forward_pass_work_handle(nullptr, /*useStaticWorldSize=*/true);
  }
  JoinScope(const JoinScope&) = delete;
  JoinScope& operator=(const JoinScope&) = delete;
  DdpState& state;
};

}  // namespace

void parallel::meet_joined_ranks(DdpState& state) {
  const bool backward = at::GradMode::is_enabled();
  const Presence mine = state.synchronises() ? kBackward : backward ? kBackwardAlone : kForwardOnly;
  const auto presences = exchange(state.group, mine);
  check_presences(state, presences);
  state.join->authority = last_of(presences);
  set_divisor(state, presences);
}

void parallel::run_joined(DdpState& state, const std::function<void()>& body, const JoinOptions& options,
                          const std::function<std::vector<NamedTensor>()>& buffers,
                          const std::function<std::vector<NamedTensor>()>& parameters) {
  check_joinable(state);
  const JoinScope scope(state, options);
  body();
  std::int64_t shadowed = 0;
  while (shadow_step(state, buffers)) ++shadowed;
  const int last = last_of(exchange(state.group, shadowed == 0 ? 1 : 0));
  state.broadcast(parallel::without_repeats(parameters()), last);
  if (state.options.broadcast_buffers) state.broadcast(parallel::without_repeats(buffers()), last);
}

}  // namespace lockstep
