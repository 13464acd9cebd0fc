// Times of an all_reduce (float32, sum, in place) over each transport, one line a size and a transport on
// rank 0: "transport bytes median_us". Started once a rank by `lockstep run`; see all_reduce.py.
//
// Each time is of one operation after both have met: the data were just written, as gradients are.

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <utility>
#include <vector>

#include "comm/diagnostics/op_meta.hpp"
#include "comm/transport/shared_allocation.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "pin.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using lockstep::ProcessGroup;

double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

int repeats(std::int64_t bytes) { return bytes >= (16 << 20) ? 7 : bytes >= (1 << 20) ? 30 : 150; }

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

double time_all_reduce(const ProcessGroup& group, const ProcessGroup& meeting, const at::Tensor& tensor) {
  const at::Tensor flag = at::empty({1}).zero_();
  const auto count = repeats(static_cast<std::int64_t>(tensor.nbytes()));
  std::vector<double> times;
  for (int i = 0; i < count + 3; ++i) {
    tensor.fill_(group.rank() + 1.0);
    meeting.all_reduce(flag);
    meeting.all_reduce(flag);
    const auto begun = Clock::now();
    group.all_reduce(tensor);
    if (i >= 3) times.push_back(microseconds(Clock::now() - begun));
  }
  const float right = static_cast<float>(group.size() * (group.size() + 1)) / 2;
  const float* values = tensor.const_data_ptr<float>();
  const bool all_right =
      std::all_of(values, values + tensor.numel(), [&](float value) { return value == right; });
  if (!all_right) throw lockstep::Error("an all_reduce gave a wrong sum");
  return median(times);
}

double time_copy(std::int64_t bytes) {
  std::vector<char> from(static_cast<std::size_t>(bytes), 1), to(static_cast<std::size_t>(bytes), 2);
  std::vector<double> times;
  for (int i = 0; i < repeats(bytes) + 3; ++i) {
    from[0] = static_cast<char>(i);
    const auto begun = Clock::now();
    std::memcpy(to.data(), from.data(), to.size());
    if (i >= 3) times.push_back(microseconds(Clock::now() - begun));
    if (to[0] != from[0]) throw lockstep::Error("a copy went wrong");
  }
  return median(times);
}

void report(const ProcessGroup& group, const char* transport, std::int64_t bytes, double time) {
  if (group.rank() == 0) std::cout << transport << ' ' << bytes << ' ' << time << std::endl;
}

int measure() {
  const auto world = lockstep::World::from_environment();
  lockstep::benchmarks::pin(world.rank, world.world_size);
  const ProcessGroup shared = ProcessGroup::init(world, {.backend = lockstep::CommBackend::shm});
  // Gloo as it comes, and as Lockstep's users get it, which verifies buckets alone.
  const auto gloo_group = [&](std::optional<lockstep::DiagnosticsOptions> diagnostics) {
    return ProcessGroup(shared.rank(), shared.size(), shared.new_namespace(),
                        {.backend = lockstep::CommBackend::gloo, .diagnostics = std::move(diagnostics)});
  };
  const ProcessGroup gloo =
      gloo_group(lockstep::DiagnosticsOptions{.check = lockstep::CollectiveCheckLevel::off});
  const ProcessGroup usual = gloo_group(std::nullopt);
  for (std::int64_t bytes = 4 << 10; bytes <= (64 << 20); bytes *= 4) {
    const auto make = [&] { return at::empty({bytes / 4}).zero_(); };
    const auto make_shared = [&] {
      const lockstep::comm::SharedAllocation scope(shared);
      return make();
    };
    report(shared, "staged", bytes, time_all_reduce(shared, shared, make()));
    report(shared, "direct", bytes, time_all_reduce(shared, shared, make_shared()));
    report(shared, "gloo", bytes, time_all_reduce(gloo, shared, make()));
    report(shared, "default", bytes, time_all_reduce(usual, shared, make()));
    const lockstep::comm::OperationLabel label("bucket 0");
    report(shared, "verified", bytes, time_all_reduce(usual, shared, make()));
    report(shared, "memcpy", bytes, time_copy(bytes));
  }
  return 0;
}

}  // namespace

int main() { return lockstep::run_program("all_reduce_benchmark", measure); }
