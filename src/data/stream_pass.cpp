#include "data/stream_pass.hpp"

#include <ATen/ATen.h>

#include <array>
#include <limits>
#include <utility>

#include "comm/deferred_reduction.hpp"
#include "data/batches_ahead.hpp"
#include "data/stream_dispatch.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The batches of this rank's own parts.
class OwnBatches final : public StreamPass {
 public:
  OwnBatches(const StreamPassOptions& options, Prefetcher* workers);

  std::optional<Batch> next() override;
  std::optional<std::int64_t> left() const override { return ahead_.left(); }
  PartPositions parts() const override { return given_; }

 private:
  using Ahead = BatchAhead<PrefetchedBatch>;

  Ahead read_ahead();
  Ahead read_own();
  void ask_peers();
  std::optional<PrefetchedBatch> own();
  PrefetchedBatch read(std::int64_t number);
  std::optional<PrefetchedBatch> agreed(Ahead& mine);
  PartPositions in_order() const;

  std::int64_t batch_size_;
  bool drop_last_;
  std::optional<ProcessGroup> peers_;
  /// This rank's next batch, about which the ranks are being asked.
  Ahead asked_;
  std::optional<comm::DeferredReduction> answers_;
  StreamBatches batches_;
  Prefetcher* workers_;
  /// The parts' positions after the batches taken from the readers, in the readers' order.
  PartPositions positions_;
  std::int64_t number_ = 0;
  PartPositions given_;
  /// Whether this rank had any batch.
  bool any_ = false;
  BatchesAhead<PrefetchedBatch> ahead_;
};

DataLoaderOptions of_one_rank(const StreamPassOptions& options) {
  auto own = options.options;
  own.batch_size = rank_batch_size(options.plan);
  return own;
}

PartPositions begin_of(const StreamPassOptions& options) {
  if (!options.parts.empty()) return options.parts;
  return first_positions(options.plan.num_replicas, options.plan.rank,
                         std::max(options.options.num_workers, 1));
}

bool is_even(const BatchPlanOptions& plan) { return plan.num_replicas > 1 && plan.how.even_batches; }

OwnBatches::OwnBatches(const StreamPassOptions& options, Prefetcher* workers)
    : batch_size_(rank_batch_size(options.plan)),
      drop_last_(options.plan.drop_last),
      peers_(is_even(options.plan) ? options.group : std::nullopt),
      batches_(options.stream, of_one_rank(options), options.epoch, begin_of(options), is_even(options.plan)),
      workers_(workers),
      positions_(batches_.parts()),
      given_(positions_),
      ahead_(options.look_ahead) {
  if (workers_ != nullptr) {
    workers_->start([this](std::int64_t number) { return batches_.read(number); },
                    std::numeric_limits<std::int64_t>::max());
  }
}

std::optional<Batch> OwnBatches::next() {
  auto taken = ahead_.next([this] { return read_ahead(); });
  if (taken.failure) std::rethrow_exception(taken.failure);
  if (!taken.batch) return std::nullopt;
  given_ = std::move(taken.parts);
  return batches_.finish(std::move(*taken.batch));
}

/// The ranks are asked about a batch while the one before it is used, so that none waits for the others.
OwnBatches::Ahead OwnBatches::read_ahead() {
  if (!peers_) return read_own();
  if (!answers_) ask_peers();
  Ahead ahead = std::move(asked_);
  ahead.batch = agreed(ahead);
  if (ahead.batch) ask_peers();
  return ahead;
}

OwnBatches::Ahead OwnBatches::read_own() {
  Ahead ahead;
  try {
    ahead.batch = own();
    any_ = any_ || ahead.batch.has_value();
  } catch (...) {
    ahead.failure = std::current_exception();
  }
  ahead.parts = in_order();
  return ahead;
}

void OwnBatches::ask_peers() {
  asked_ = read_own();
  bool is_empty = false;
  // A rank that had a batch has rows to repeat, and reads them only when needed.
  if (!any_ && !asked_.failure && !drop_last_) {
    try {
      is_empty = !batches_.repetition(batch_size_);
    } catch (...) {
      asked_.failure = std::current_exception();
    }
  }
  const auto flag = [](bool set) { return std::int64_t{set ? 1 : 0}; };
  if (!answers_) answers_.emplace(*peers_);
  answers_->start(
      at::tensor({flag(asked_.batch.has_value()), flag(is_empty), flag(asked_.failure != nullptr)},
                 at::kLong),
      ReduceOp::sum);
}

/// Skips the turns of parts that have ended.
std::optional<PrefetchedBatch> OwnBatches::own() {
  const auto count = std::ssize(positions_);
  for (std::int64_t turn = 0; turn < count; ++turn) {
    auto batch = read(number_);
    auto outcome = batches_.take_outcome(number_);
    positions_[static_cast<std::size_t>(number_++ % count)] = std::move(outcome.after);
    if (outcome.has_batch) return batch;
  }
  return std::nullopt;
}

PrefetchedBatch OwnBatches::read(std::int64_t number) {
  if (workers_ == nullptr) return batches_.read(number);
  return *workers_->next();
}

PartPositions OwnBatches::in_order() const {
  const auto count = std::ssize(positions_);
  PartPositions order;
  for (std::int64_t index = 0; index < count; ++index)
    order.push_back(positions_[static_cast<std::size_t>((number_ + index) % count)]);
  return order;
}

/// All ranks end together: a rank without a batch repeats its first one while others have batches; with
/// drop_last, all end with the first one.
std::optional<PrefetchedBatch> OwnBatches::agreed(Ahead& mine) {
  const at::Tensor flags = answers_->result();
  const auto* const ranks = flags.const_data_ptr<std::int64_t>();
  if (mine.failure) return std::nullopt;
  if (ranks[2] > 0) {
    mine.failure = std::make_exception_ptr(
        DataError("another rank could not read its batch of the stream: its own error says why."));
    return std::nullopt;
  }
  if (ranks[0] == 0 || (drop_last_ && ranks[0] < peers_->size())) return std::nullopt;
  if (ranks[1] > 0) {
    mine.failure = std::make_exception_ptr(
        UsageError("even_batches: a rank has no row of the stream that it could repeat while others have "
                   "batches. Use fewer ranks, more files, or even_batches=false with join_uneven_inputs()."));
    return std::nullopt;
  }
  return mine.batch ? std::move(mine.batch) : batches_.repetition(batch_size_);
}

}  // namespace

std::unique_ptr<StreamPass> open_stream(StreamPassOptions options, Prefetcher* workers) {
  if (options.plan.num_replicas == 1 || !options.plan.how.dispatch_batches)
    return std::make_unique<OwnBatches>(options, workers);
  const bool reads = options.plan.rank == 0;
  auto whole = options;
  whole.plan = {.batch_size = options.plan.batch_size, .drop_last = options.plan.drop_last};
  whole.look_ahead = 1;
  whole.options.device = at::kCPU;
  whole.options.pin_memory = whole.options.non_blocking = false;
  std::unique_ptr<StreamPass> batches;
  std::function<Batch()> first;
  if (reads) {
    batches = std::make_unique<OwnBatches>(whole, workers);
    first = [whole, count = std::max<std::int64_t>(whole.options.batch_size, options.group->size())] {
      StreamBatches again(whole.stream, whole.options, whole.epoch, begin_of(whole), false);
      return again.finish(*again.repetition(count));
    };
  }
  return dispatched_stream(std::move(batches), std::move(first), options);
}

}  // namespace lockstep
