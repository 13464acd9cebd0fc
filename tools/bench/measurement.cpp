#include "measurement.hpp"

#include <ATen/ops/full.h>

#include <chrono>

#include "collectives.hpp"

namespace bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Reading a number makes the host wait for a GPU.
void finish(const Case& made) {
  if (made.output.defined() && made.output.is_cuda() && made.output.numel() > 0)
    static_cast<void>(made.output.flatten()[0].item());
}

double seconds_a_round(const Case& made, const lockstep::ProcessGroup& group, const Options& options) {
  for (int round = 0; round < options.warmup; ++round) made.run();
  finish(made);
  group.barrier();
  const auto start = Clock::now();
  for (int round = 0; round < options.iterations; ++round) made.run();
  finish(made);
  return std::chrono::duration<double>(Clock::now() - start).count() / options.iterations;
}

double over_ranks(const lockstep::ProcessGroup& group, double number, lockstep::ReduceOp op) {
  const at::Tensor tensor = at::full({1}, number, at::TensorOptions(at::kDouble).device(group.device()));
  group.all_reduce(tensor, op);
  return tensor.item().toDouble();
}

std::int64_t wrong_elements(const Case& made, const lockstep::ProcessGroup& group) {
  made.prepare();
  made.run();
  const bool checks = made.expected.defined();
  const std::int64_t own = checks ? made.output.ne(made.expected).sum().item().toLong() : 0;
  return static_cast<std::int64_t>(over_ranks(group, static_cast<double>(own), lockstep::ReduceOp::sum));
}

}  // namespace

Measurement measure(const std::string& collective, const lockstep::ProcessGroup& group,
                    const Options& options, std::int64_t bytes) {
  const at::ScalarType dtype = dtype_from(options.dtype);
  const auto element = static_cast<std::int64_t>(c10::elementSize(dtype));
  const std::int64_t count = count_for(collective, bytes / element, group.size());
  const Case made = make_case(collective, group, {dtype, op_from(options.op), count});
  Measurement result{.collective = collective, .bytes = count * element, .count = count};
  const double own = seconds_a_round(made, group, options);
  result.seconds = over_ranks(group, own, lockstep::ReduceOp::max);
  result.algorithm_bandwidth = static_cast<double>(result.bytes) / result.seconds;
  result.bus_bandwidth = result.algorithm_bandwidth * bus_factor(collective, group.size());
  if (options.check && has_size(collective)) result.wrong = wrong_elements(made, group);
  return result;
}

}  // namespace bench
