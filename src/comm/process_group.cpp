#include "lockstep/comm/process_group.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/backend/cpu_backend.hpp"
#include "comm/diagnostics/liveness_probe.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "comm/group_observer.hpp"
#include "comm/planner_link.hpp"
#include "comm/process_group_impl.hpp"
#include "comm/set_up_record.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {
namespace {

void check_options(int rank, int size, const ProcessGroupOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw UsageError(
        fmt::format("a process group needs 0 <= rank < size; rank is {} and size is {}", rank, size));
  }
  constexpr std::chrono::hours kYear(24 * 365);  // Longer times overflow in clock arithmetic.
  for (const auto timeout : {options.timeout, options.join_timeout}) {
    if (timeout.count() > 0 && timeout <= kYear) continue;
    throw UsageError("a process group's timeouts must be longer than 0 ms and at most a year");
  }
  const at::Device& device = options.device;
  if (!device.is_cpu() && !device.is_cuda()) {
    throw UsageError(
        fmt::format("a process group's device must be the CPU or a CUDA device, not {}", device.str()));
  }
  if (device.is_cuda() && !device.has_index()) {
    throw UsageError("a process group's CUDA device needs its index, for example cuda:0");
  }
  if (options.backend == CommBackend::nccl && !device.is_cuda()) {
    throw UsageError(
        fmt::format("the nccl backend carries CUDA tensors only, and this group's device is {}: use 'auto', "
                    "'shm' or 'gloo' for the CPU",
                    device.str()));
  }
  if (options.backend == CommBackend::shm && device.is_cuda()) {
    throw UsageError(
        fmt::format("the shm backend carries CPU tensors only, and this group's device is {}: use 'auto', "
                    "which takes it for the CPU tensors",
                    device.str()));
  }
}

/// Adds what the missing ranks do instead, if they answer.
[[noreturn]] void add_activity(const TimeoutError& error, comm::PeerMonitor* monitor) {
  if (monitor == nullptr) throw error;
  const std::string activity = comm::activity_text(monitor->ask(), error.missing_ranks());
  if (activity.empty()) throw error;
  throw TimeoutError(fmt::format("{}. Now {}", error.what(), activity), error.missing_ranks());
}

/// The job's store for this process's next group of the world.
///
/// A process connects once and stays connected until it ends: rank 0 may host the store, and the others may
/// still need it, or join again, after rank 0 has destroyed its group. Each group has its own keys, numbered
/// in the order in which a process makes them, which is the same on every rank. A second group is therefore
/// no second claim of a rank, while another process that claims the rank begins with the first group's keys.
struct JobStore {
  Store store;
  bool is_first;  // Of this process's groups of the world.
};
JobStore next_job_store(const World& world, std::chrono::milliseconds timeout) {
  struct Job {
    std::optional<Store> store;
    std::int64_t groups = 0;
  };
  static std::mutex mutex;
  static std::map<std::string, Job> jobs;
  // A forked process has no connection of its own yet; ranks may be threads of one process.
  const std::string key = fmt::format("{} {}:{} {} {}", ::getpid(), world.master_addr, world.master_port,
                                      world.restart_count, world.rank);
  std::unique_lock lock(mutex);
  if (!jobs[key].store) {
    // Rank 0 may be another thread, which hosts the store.
    lock.unlock();
    Store connected = Store::connect(world, timeout);
    lock.lock();
    jobs[key].store = std::move(connected);
  }
  Job& job = jobs[key];
  ++job.groups;
  if (job.groups == 1) return {*job.store, true};
  return {job.store->with_prefix(fmt::format("again/{}", job.groups)), false};
}

}  // namespace

CommBackend comm_backend_from(const std::string& name) {
  if (name == "auto") return CommBackend::automatic;
  if (name == "gloo") return CommBackend::gloo;
  if (name == "nccl") return CommBackend::nccl;
  if (name == "shm") return CommBackend::shm;
  throw UsageError(
      fmt::format("'{}' is not a communication backend: expected auto, shm, gloo or nccl", name));
}

ProcessGroup ProcessGroup::init(const World& world, const ProcessGroupOptions& options) {
  check_options(world.rank, world.world_size, options);
  const Heartbeat::Waiting beat(process_heartbeat(), "joining the job", 0);
  if (world.world_size == 1) return ProcessGroup(world.rank, world.world_size, Store::in_memory(), options);
  const auto [store, is_first] = next_job_store(world, options.join_timeout);
  if (const auto replacement = comm::replacement_of_this_process(); replacement && is_first)
    return comm::join_generation(world.rank, world.world_size, store,
                                 std::max<std::uint64_t>(replacement->generation, 2), options);
  return ProcessGroup(world.rank, world.world_size, store, options);
}

ProcessGroup::ProcessGroup(int rank, int size, const Store& store, const ProcessGroupOptions& options)
    : ProcessGroup(join(rank, size, store, options, 1)) {}

ProcessGroup ProcessGroup::join(int rank, int size, const Store& store, const ProcessGroupOptions& options,
                                std::uint64_t generation) {
  check_options(rank, size, options);
  // Uses its own connection, so that a rank that waits in a barrier does not block the program's use of the
  // store.
  return ProcessGroup(std::make_shared<Impl>(GroupInfo::whole(rank, size), "world", store,
                                             store.clone().with_prefix("group"), options, generation));
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

int ProcessGroup::rank() const noexcept { return impl_->members.rank; }
int ProcessGroup::size() const noexcept { return impl_->members.size(); }
const at::Device& ProcessGroup::device() const noexcept { return impl_->options.device; }
std::chrono::milliseconds ProcessGroup::timeout() const noexcept { return impl_->options.timeout; }
Store ProcessGroup::new_namespace() const {
  return impl_->connections->store.with_prefix(fmt::format("namespace/{}", ++impl_->namespaces));
}
const std::shared_ptr<c10d::ProcessGroup>& ProcessGroup::c10d_process_group() const {
  return impl_->connections->group;
}

void ProcessGroup::barrier() const { barrier(impl_->options.timeout); }

void ProcessGroup::barrier(std::chrono::milliseconds timeout) const {
  impl_->throw_if_aborted("barrier");
  impl_->throw_if_provisional("barrier");
  if (const auto& set_up = impl_->connections->diagnostics->set_up) set_up->note_barrier();
  const auto begin = std::chrono::steady_clock::now();
  if (impl_->options.device.is_cuda()) wait_for_device(*impl_->who, impl_->options.device, timeout);
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  Connections& connections = *impl_->connections;
  comm::PeerMonitor* const monitor = connections.diagnostics->monitor.get();
  comm::LivenessProbe probe(impl_->path, *connections.diagnostics->recorder,
                            comm::shared_memory_of(*connections.group), monitor);
  const auto can_complete = [&](const std::vector<int>& missing, std::chrono::milliseconds waiting) {
    impl_->throw_if_aborted("barrier");
    return probe(missing, waiting);
  };
  try {
    connections.barrier.arrive_and_wait(timeout - std::min(waited, timeout), can_complete);
  } catch (const TimeoutError& error) {
    add_activity(error, monitor);
  } catch (const CommunicationError& error) {
    probe.announce_failure(error.what());
    throw;
  }
}

std::string ProcessGroup::write_trace(const std::string& folder) const {
  return comm::TraceWriter::write_into(*impl_->connections->diagnostics->recorder, folder, "the program");
}

}  // namespace lockstep
