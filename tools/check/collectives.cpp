#include "collectives.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <chrono>

#include "lockstep/core/error.hpp"
#include "table.hpp"

namespace check {
namespace {

using Clock = std::chrono::steady_clock;

struct Size {
  std::int64_t bytes;
  int rounds;
};
constexpr Size kSizes[] = {{4, 50}, {4 << 10, 50}, {256 << 10, 20}, {4 << 20, 8}, {32 << 20, 3}};

/// Whole numbers, different in each place: sums are exact, and a block in the wrong place is seen.
at::Tensor pattern(const lockstep::ProcessGroup& group, std::int64_t count) {
  return at::arange(count, at::TensorOptions(at::kFloat).device(group.device())).remainder(251);
}

/// The time of one all-reduce. Reading a number makes the host wait for a GPU.
double one_round(const lockstep::ProcessGroup& group, const at::Tensor& tensor) {
  const auto start = Clock::now();
  group.all_reduce(tensor);
  static_cast<void>(tensor.flatten()[0].item());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_sum(const lockstep::ProcessGroup& group, const at::Tensor& sum, const at::Tensor& base,
               std::int64_t bytes) {
  const int size = group.size();
  const at::Tensor expected = base.mul(size).add(static_cast<double>(size) * (size - 1) / 2);
  if (sum.equal(expected)) return;
  throw lockstep::Error("rank " + std::to_string(group.rank()) + ": an all_reduce of " + bytes_text(bytes) +
                        " gave wrong numbers: memory, a network card or a driver is broken");
}

double time_of(const lockstep::ProcessGroup& group, const Size& size) {
  const at::Tensor base = pattern(group, size.bytes / 4);
  std::vector<double> times;
  for (int round = 0; round <= size.rounds; ++round) {
    const at::Tensor tensor = base.add(group.rank());
    const double time = one_round(group, tensor);
    check_sum(group, tensor, base, size.bytes);
    // The first one sets up connections.
    if (round > 0) times.push_back(time);
  }
  return slowest(group, median(times));
}

double barrier_time(const lockstep::ProcessGroup& group) {
  std::vector<double> times;
  for (int round = 0; round < 20; ++round) {
    const auto start = Clock::now();
    group.barrier();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return slowest(group, median(times));
}

}  // namespace

double slowest(const lockstep::ProcessGroup& group, double seconds) {
  const at::Tensor time = at::full({1}, seconds, at::TensorOptions(at::kDouble).device(group.device()));
  group.all_reduce(time, lockstep::ReduceOp::max);
  return time.item().toDouble();
}

std::string check_collectives(const lockstep::ProcessGroup& group) {
  Table table({"operation", "size", "time", "bandwidth", "result"});
  table.add({"barrier", "", time_text(barrier_time(group)), "", "ok"});
  for (const Size& size : kSizes) {
    const double time = time_of(group, size);
    table.add({"all_reduce", bytes_text(size.bytes), time_text(time),
               bandwidth_text(static_cast<double>(size.bytes) / time), "ok"});
  }
  return table.text();
}

}  // namespace check
