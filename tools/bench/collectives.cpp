#include "collectives.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>

#include "lockstep/core/error.hpp"
#include "test_values.hpp"

namespace bench {
namespace {

using lockstep::ProcessGroup;
using lockstep::ReduceOp;
using Clock = std::chrono::steady_clock;

/// The data of one size on this rank.
struct Shape {
  at::ScalarType dtype;
  ReduceOp op;
  /// Elements of the larger side.
  std::int64_t count;
};

/// One collective at one size. `run` may be called repeatedly, and changes `output` in place if the
/// collective does.
struct Case {
  at::Tensor output;
  std::function<void()> run;
  /// The output after run(); undefined if this rank gets no result.
  at::Tensor expected;
  /// The output before the run that is checked, if the collective is in place.
  at::Tensor input = {};
};

RankValues test_values(const ProcessGroup& group, int rank) { return {rank, group.size(), group.device()}; }

/// To be moved.
at::Tensor values(const ProcessGroup& group, const Shape& shape, int rank, std::int64_t count) {
  return test_values(group, rank).to_move(count).to(shape.dtype);
}

/// To be reduced.
at::Tensor operand(const ProcessGroup& group, const Shape& shape) {
  return test_values(group, group.rank()).to_reduce(shape.count, shape.op).to(shape.dtype);
}

at::Tensor reduced(const ProcessGroup& group, const Shape& shape) {
  at::Tensor all = test_values(group, 0).to_reduce(shape.count, shape.op);
  for (int rank = 1; rank < group.size(); ++rank)
    all = combined(all, test_values(group, rank).to_reduce(shape.count, shape.op), shape.op);
  // As in the backends, the sum is divided in its dtype.
  return shape.op == ReduceOp::avg ? all.to(shape.dtype).div(group.size()) : all.to(shape.dtype);
}

at::Tensor part_of(const at::Tensor& tensor, const ProcessGroup& group) {
  const std::int64_t length = tensor.numel() / group.size();
  return tensor.narrow(0, group.rank() * length, length);
}

at::Tensor all_values(const ProcessGroup& group, const Shape& shape) {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < group.size(); ++rank)
    all.push_back(values(group, shape, rank, shape.count / group.size()));
  return at::cat(all);
}

Case in_place(const at::Tensor& input, const std::function<void(const at::Tensor&)>& run,
              const at::Tensor& expected) {
  const at::Tensor buffer = input.clone();
  return {buffer, [=] { run(buffer); }, expected, input};
}

Case all_reduce(const ProcessGroup& group, const Shape& shape) {
  return in_place(
      operand(group, shape),
      [group, op = shape.op](const at::Tensor& tensor) { group.all_reduce(tensor, op); },
      reduced(group, shape));
}

Case reduce(const ProcessGroup& group, const Shape& shape) {
  Case made = in_place(
      operand(group, shape),
      [group, op = shape.op](const at::Tensor& tensor) { group.reduce(tensor, 0, op); },
      reduced(group, shape));
  if (group.rank() != 0) made.expected.reset();
  return made;
}

Case broadcast(const ProcessGroup& group, const Shape& shape) {
  return in_place(
      values(group, shape, group.rank(), shape.count),
      [group](const at::Tensor& tensor) { group.broadcast(tensor, 0); },
      values(group, shape, 0, shape.count));
}

Case all_gather(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count / group.size());
  const at::Tensor output = at::empty({shape.count}, input.options());
  return {output, [=] { group.all_gather_into_tensor(output, input); }, all_values(group, shape)};
}

Case reduce_scatter(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = operand(group, shape);
  const at::Tensor output = at::empty({shape.count / group.size()}, input.options());
  const auto run = [=, op = shape.op] { group.reduce_scatter_tensor(output, input, op); };
  return {output, run, part_of(reduced(group, shape), group)};
}

Case gather(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count / group.size());
  const bool root = group.rank() == 0;
  const at::Tensor output = at::empty({root ? shape.count : 0}, input.options());
  const auto outputs = root ? output.chunk(group.size()) : std::vector<at::Tensor>{};
  const auto run = [=] { group.gather_async(outputs, input, 0).wait(); };
  return {output, run, root ? all_values(group, shape) : at::Tensor()};
}

Case scatter(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, 0, shape.count);
  const at::Tensor output = at::empty({shape.count / group.size()}, input.options());
  const auto inputs = group.rank() == 0 ? input.chunk(group.size()) : std::vector<at::Tensor>{};
  return {output, [=] { group.scatter(output, inputs, 0); }, part_of(input, group)};
}

Case all_to_all(const ProcessGroup& group, const Shape& shape) {
  const at::Tensor input = values(group, shape, group.rank(), shape.count);
  const at::Tensor output = at::empty_like(input);
  std::vector<at::Tensor> expected;
  for (int rank = 0; rank < group.size(); ++rank)
    expected.push_back(part_of(values(group, shape, rank, shape.count), group));
  return {output, [=] { group.all_to_all_single(output, input); }, at::cat(expected)};
}

/// Every rank sends to the next one.
Case send_recv(const ProcessGroup& group, const Shape& shape) {
  const int before = (group.rank() + group.size() - 1) % group.size();
  const at::Tensor input = values(group, shape, group.rank(), shape.count);
  const at::Tensor output = at::empty_like(input);
  const auto run = [=] {
    auto sending = group.send_async(input, (group.rank() + 1) % group.size());
    group.recv(output, before);
    sending.wait();
  };
  return {output, run, values(group, shape, before, shape.count)};
}

/// Transfers no data; only its time is measured.
Case barrier(const ProcessGroup& group, const Shape&) {
  return {{}, [group] { group.barrier(); }, {}};
}

/// Whether every rank has all of the data, or a part.
enum class Size { none, whole, in_parts };

struct Collective {
  Case (*make)(const ProcessGroup& group, const Shape& shape);
  Size size;
  bool reduces;

  /// Which multiple of the size each link carries.
  double bus_factor(int ranks) const {
    const double others = static_cast<double>(ranks - 1) / ranks;
    if (make == all_reduce) return 2 * others;
    return size == Size::in_parts ? others : 1;
  }
  /// Rounded down to equal parts for all ranks, with at least one element each.
  std::int64_t count_for(std::int64_t requested, int ranks) const {
    if (size == Size::none) return 0;
    const std::int64_t parts = size == Size::in_parts ? ranks : 1;
    return std::max(requested / parts, std::int64_t{1}) * parts;
  }
};

const std::map<std::string, Collective> kCollectives{
    {"all_reduce", {all_reduce, Size::whole, true}},
    {"reduce", {reduce, Size::whole, true}},
    {"broadcast", {broadcast, Size::whole, false}},
    {"all_gather", {all_gather, Size::in_parts, false}},
    {"gather", {gather, Size::in_parts, false}},
    {"reduce_scatter", {reduce_scatter, Size::in_parts, true}},
    {"scatter", {scatter, Size::in_parts, false}},
    {"all_to_all", {all_to_all, Size::in_parts, false}},
    {"send_recv", {send_recv, Size::whole, false}},
    {"barrier", {barrier, Size::none, false}}};

const std::map<std::string, at::ScalarType> kDtypes{
    {"float", at::kFloat}, {"double", at::kDouble}, {"half", at::kHalf}, {"bfloat16", at::kBFloat16},
    {"int8", at::kChar},   {"uint8", at::kByte},    {"int32", at::kInt}, {"int64", at::kLong}};

const std::map<std::string, ReduceOp> kOps{{"sum", ReduceOp::sum},
                                           {"avg", ReduceOp::avg},
                                           {"product", ReduceOp::product},
                                           {"min", ReduceOp::min},
                                           {"max", ReduceOp::max}};

/// Reading an element synchronizes with the GPU.
void finish(const Case& made) {
  if (made.output.defined() && made.output.is_cuda() && made.output.numel() > 0)
    static_cast<void>(made.output.flatten()[0].item());
}

double seconds_a_round(const Case& made, const ProcessGroup& group, const Options& options) {
  for (int round = 0; round < options.warmup; ++round) made.run();
  finish(made);
  group.barrier();
  const auto start = Clock::now();
  for (int round = 0; round < options.iterations; ++round) made.run();
  finish(made);
  return std::chrono::duration<double>(Clock::now() - start).count() / options.iterations;
}

double over_ranks(const ProcessGroup& group, double number, ReduceOp op) {
  const at::Tensor tensor = at::full({1}, number, at::TensorOptions(at::kDouble).device(group.device()));
  group.all_reduce(tensor, op);
  return tensor.item().toDouble();
}

std::int64_t wrong_elements(const Case& made) {
  if (made.input.defined()) {
    made.output.copy_(made.input);
  } else {
    made.output.zero_();
  }
  made.run();
  return made.expected.defined() ? made.output.ne(made.expected).sum().item().toLong() : 0;
}

}  // namespace

Measurement measure(const std::string& collective, const ProcessGroup& group, const Options& options,
                    std::int64_t bytes) {
  const Collective& measured = kCollectives.at(collective);
  const at::ScalarType dtype = kDtypes.at(options.dtype);
  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t count = measured.count_for(bytes / element, group.size());
  const Case made = measured.make(group, {dtype, kOps.at(options.op), count});
  Measurement result{.collective = collective,
                     .type = measured.size == Size::none ? "none" : options.dtype,
                     .redop = measured.reduces ? options.op : "none",
                     .bytes = count * element,
                     .count = count};
  result.seconds = over_ranks(group, seconds_a_round(made, group, options), ReduceOp::max);
  result.algorithm_bandwidth = static_cast<double>(result.bytes) / result.seconds;
  result.bus_bandwidth = result.algorithm_bandwidth * measured.bus_factor(group.size());
  if (!options.check || measured.size == Size::none) return result;
  result.wrong_here = wrong_elements(made);
  const double wrong = over_ranks(group, static_cast<double>(result.wrong_here), ReduceOp::sum);
  result.wrong = static_cast<std::int64_t>(wrong);
  return result;
}

void require_right(const Measurement& measurement, int rank) {
  if (measurement.wrong <= 0) return;
  throw lockstep::Error(fmt::format(
      "rank {}: {} of {} bytes gave {} wrong numbers here and {} on all ranks: memory, a network card, a "
      "driver or the library is broken",
      rank, measurement.collective, measurement.bytes, measurement.wrong_here, measurement.wrong));
}

bool has_size(const std::string& collective) { return kCollectives.at(collective).size != Size::none; }

}  // namespace bench
