#include "lockstep/comm/process_group.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "comm/backend/cpu_backend.hpp"
#include "comm/c10d_handles.hpp"
#include "comm/cuda/plugin.hpp"
#include "comm/cuda/rules.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "comm/errors.hpp"
#include "comm/process_group_impl.hpp"
#include "comm/transport/transport.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "shm/group.hpp"

namespace lockstep {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

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

/// The subgroup of `group` with these ranks, which include this rank.
GroupInfo subgroup(const GroupInfo& group, const std::vector<int>& ranks) {
  GroupInfo result = group.part(ranks);
  result.who = fmt::format("rank {} ({} of {} in the group [{}])", result.name(result.rank), result.rank,
                           result.size(), fmt::join(result.names, ","));
  return result;
}

bool has_nccl(const ProcessGroupOptions& options) {
  return options.device.is_cuda() && options.backend != CommBackend::gloo;
}

c10::intrusive_ptr<c10d::Backend> nccl_of(const c10d::ProcessGroup& group,
                                          const ProcessGroupOptions& options) {
  if (!has_nccl(options)) return {};
  return group.getBackend(BackendType::NCCL);
}

using CpuBackendPointer = c10::intrusive_ptr<comm::CpuBackend>;

/// All ranks of the group read the same values, so either all fail or none.
void check_devices(const GroupInfo& members, const Store& store) {
  std::vector<comm::RankDevice> devices;
  for (const int name : members.names)
    devices.push_back({name, store.get(fmt::format("device/{}", name), comm::kAtOnce)});
  if (const std::string text = comm::shared_device_text(devices); !text.empty())
    throw UsageError(members.who + ": " + text);
}

std::string no_communicator_text(const GroupInfo& members, const ProcessGroupOptions& options) {
  return fmt::format(
      "{}: NCCL created no communicator within {} ms, although all ranks are present. See that the hosts "
      "reach "
      "each other by the network that NCCL takes (NCCL_SOCKET_IFNAME), and what it waits for "
      "(NCCL_DEBUG=INFO)",
      members.who, options.join_timeout.count());
}

/// NCCL takes a GPU of ranks with different NCCL_HOSTID for GPUs of different hosts.
std::string nccl_device(int index) {
  const std::string uuid = comm::cuda_plugin().device_uuid(index);
  const auto host = find_variable(process_environment(), "NCCL_HOSTID");
  return host ? fmt::format("{}, NCCL_HOSTID {}", uuid, *host) : uuid;
}

/// NCCL waits without timeout for a missing rank, so ranks synchronize right before.
void meet_before_nccl(const GroupInfo& members, const Store& store, const ProcessGroupOptions& options) {
  store.set(fmt::format("device/{}", members.name(members.rank)), nccl_device(options.device.index()));
  coordination::Barrier(comm::make_session(store, members)).arrive_and_wait(options.join_timeout);
  check_devices(members, store);
}

/// CUDA's own call has no timeout, and a kernel that waits for a lost rank never ends.
void wait_for_device(const std::string& who, const at::Device& device, std::chrono::milliseconds limit) {
  comm::made_within(
      limit,
      fmt::format("{}: {} has not finished within {} ms what it was given to do. An operation that "
                  "another rank has not started, or a kernel that does not end, holds it up.",
                  who, device.str(), limit.count()),
      [index = device.index()] { comm::cuda_plugin().synchronize(index); });
}

/// NCCL's operations are in c10d's own flight recorder.
void add_nccl(c10d::ProcessGroup& group, const GroupInfo& members, const std::string& path,
              const Store& store, const ProcessGroupOptions& options, const NcclParent& nccl) {
  if (nccl.backend)
    nccl.meet();
  else
    meet_before_nccl(members, store.with_prefix("nccl_join"), options);
  const comm::NcclRequest request{
      .store = c10::make_intrusive<c10d::PrefixStore>(path, nccl.communicators->store()),
      .rank = members.rank,
      .size = members.size(),
      .device_index = options.device.index(),
      .timeout = options.timeout,
      .name = path,
      .ranks = members.names,
      .high_priority_streams = options.nccl_high_priority_streams,
      .parent = nccl.backend,
      .color = nccl.color};
  const auto backend =
      comm::made_within(options.join_timeout, no_communicator_text(members, options),
                        [request] { return comm::cuda_plugin().make_nccl_backend(request); });
  nccl.communicators->add(backend);
  group.setBackend(at::kCUDA, BackendType::NCCL, backend);
}

/// `cpu`: the backend for CPU tensors; null: none.
std::shared_ptr<c10d::ProcessGroup> make_group(const GroupInfo& members, const std::string& path,
                                               const Store& store, const ProcessGroupOptions& options,
                                               const CpuBackendPointer& cpu, const NcclParent& nccl) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(comm::to_intrusive(store.c10d_store()), members.rank,
                                                       members.size());
  if (options.device.is_cuda()) group->setBoundDeviceId(options.device);
  auto type = BackendType::NCCL;
  if (cpu) {
    type = cpu->getBackendName() == "gloo" ? BackendType::GLOO : BackendType::CUSTOM;
    group->setBackend(at::kCPU, type, cpu);
    if (options.device.is_cuda() && !has_nccl(options)) group->setBackend(at::kCUDA, type, cpu);
  }
  if (has_nccl(options)) {
    add_nccl(*group, members, path, store, options, nccl);
    type = BackendType::NCCL;
  }
  group->setDefaultBackend(type);
  group->setGroupName(path);
  return comm::to_shared(std::move(group));
}

std::string describe(const std::vector<int>& ranks) { return fmt::format("[{}]", fmt::join(ranks, ",")); }

void check_members(const std::vector<int>& ranks, int size) {
  const std::set<int> distinct(ranks.begin(), ranks.end());
  const bool in_range = !ranks.empty() && *distinct.begin() >= 0 && *distinct.rbegin() < size;
  if (!in_range || distinct.size() != ranks.size()) {
    throw UsageError(fmt::format("new_group{}: expected one or more different ranks from 0 to {}",
                                 describe(ranks), size - 1));
  }
}

/// Also fails the ranks that already wait for the members of the other list.
[[noreturn]] void refuse_part(const std::string& who, const Store& store, const std::vector<int>& ranks,
                              const std::string& agreed) {
  const std::string reason = fmt::format(
      "{}: new_group{} here, but another rank calls new_group{}: every rank must pass the same list, in the "
      "same order of calls",
      who, describe(ranks), agreed);
  comm::abort_join(store, reason);
  throw CommunicationError(reason);
}

/// Adds what the missing ranks do instead, if they answer.
[[noreturn]] void add_activity(const TimeoutError& error, comm::PeerMonitor* monitor) {
  if (monitor == nullptr) throw error;
  const std::string activity = comm::activity_text(monitor->ask(), error.missing_ranks());
  if (activity.empty()) throw error;
  throw TimeoutError(fmt::format("{}. Now {}", error.what(), activity), error.missing_ranks());
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

ProcessGroup::Impl::Impl(const GroupInfo& group_members, std::string group_path, const Store& origin,
                         const Store& group_store, const ProcessGroupOptions& group_options,
                         std::shared_ptr<comm::Diagnostics> diagnostics, const NcclParent& nccl_parent)
    : members(group_members),
      path(std::move(group_path)),
      who(std::make_shared<std::string>(members.who)),
      options(group_options),
      is_outermost(diagnostics == nullptr) {
  const bool only_gloo = options.device.is_cpu() || options.backend == CommBackend::gloo;
  comm::settle_library_log(only_gloo ? comm::LibraryLog::none : comm::LibraryLog::errors);
  coordination::Barrier join = comm::join_group(group_store, members, options.join_timeout);
  if (is_outermost) {
    diagnostics = std::make_shared<comm::Diagnostics>(
        members, group_store.with_prefix("peer_monitor"),
        options.diagnostics ? *options.diagnostics : DiagnosticsOptions::from_environment());
  }
  NcclParent nccl = nccl_parent;
  if (has_nccl(options) && !nccl.communicators)
    nccl.communicators =
        std::make_shared<comm::NcclCommunicators>(comm::rooted(group_store.with_prefix("nccl")));
  CpuBackendPointer cpu;
  auto group = comm::translated(
      [&] {
        if (options.device.is_cuda()) comm::cuda_plugin().set_device(options.device.index());
        if (options.backend != CommBackend::nccl) cpu = make_cpu_backend(group_store, diagnostics);
        return make_group(members, path, group_store, options, cpu, nccl);
      },
      [&] { return *who + ": setting up the process group failed"; });
  connections = std::make_unique<Connections>(Connections{
      diagnostics, origin, group_store, coordination::Barrier(comm::make_session(group_store, members)),
      std::move(group), cpu.get()});
  connections->nccl = nccl.communicators;
  if (is_outermost && connections->nccl) connections->nccl->set_end(nccl_end());
  // No rank may continue, and perhaps exit, before all are connected.
  join.arrive_and_wait(options.join_timeout);
}

CpuBackendPointer ProcessGroup::Impl::make_cpu_backend(const Store& store,
                                                       std::shared_ptr<comm::Diagnostics> diagnostics) const {
  const bool verifies = diagnostics->options.check != CollectiveCheckLevel::off;
  const comm::TransportOptions how{.binds = is_outermost, .verifies = verifies};
  auto [transport, cpu] = comm::make_transport(members, store, options, how);
  auto tracker = std::make_shared<comm::OperationTracker>(
      std::move(diagnostics), comm::OperationTracker::Scope{members, path, options.timeout},
      transport->name(), store);
  return c10::make_intrusive<comm::CpuBackend>(members.rank, members.size(), std::move(transport),
                                               std::move(tracker), cpu);
}

/// The last group to end may be a subgroup, so this keeps all it needs, including the store's host.
comm::NcclCommunicators::End ProcessGroup::Impl::nccl_end() const {
  auto meet = [barrier = coordination::Barrier(
                   comm::make_session(connections->store.with_prefix("nccl_end"), members)),
               host = connections->origin, group = connections->group, name = path,
               diagnostics = connections->diagnostics, timeout = options.timeout]() mutable {
    comm::LivenessProbe probe(name, *diagnostics->recorder, comm::shared_memory_of(*group),
                              diagnostics->monitor.get());
    barrier.arrive_and_wait(timeout, std::ref(probe));
  };
  return {
      *who,
      [who = *who, device = options.device, limit = options.timeout] { wait_for_device(who, device, limit); },
      std::move(meet)};
}

ProcessGroup::Impl::~Impl() {
  // When an exception ends this rank, its connections stay open until the process ends. c10d's destructor
  // would wait for operations in flight, up to their timeout, and a closed connection would make other ranks
  // fail, and report it, before this rank has reported the cause. Ranks that share memory with this one learn
  // it through that memory. They are not woken and fail shortly afterwards, so that this rank can report the
  // cause first.
  if (!connections) return;
  if (std::uncaught_exceptions() > 0) {
    if (auto* const memory = comm::shared_memory_of(*connections->group)) memory->step_sync().leave(true);
    // Ends kernels that wait for other ranks, so that nothing waits for them while this process ends.
    if (const auto nccl = std::move(connections->nccl)) nccl->abort(nccl_of(*connections->group, options));
    static_cast<void>(connections.release());
    return;
  }
  // All ranks synchronize here, so none may have announced its exit yet.
  connections->nccl.reset();
  if (is_outermost && connections->diagnostics->monitor) connections->diagnostics->monitor->announce_exit();
}

namespace {

/// The job's store for this process's next group of the world.
///
/// A process connects once and stays connected until it ends: rank 0 may host the store, and the others may
/// still need it, or join again, after rank 0 has destroyed its group. Each group has its own keys, numbered
/// in the order in which a process makes them, which is the same on every rank. A second group is therefore
/// no second claim of a rank, while another process that claims the rank begins with the first group's keys.
Store next_job_store(const World& world, std::chrono::milliseconds timeout) {
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
  return job.groups == 1 ? *job.store : job.store->with_prefix(fmt::format("again/{}", job.groups));
}

}  // namespace

ProcessGroup ProcessGroup::init(const World& world, const ProcessGroupOptions& options) {
  check_options(world.rank, world.world_size, options);
  const Heartbeat::Waiting beat(process_heartbeat(), "joining the job", 0);
  const Store store =
      world.world_size == 1 ? Store::in_memory() : next_job_store(world, options.join_timeout);
  return ProcessGroup(world.rank, world.world_size, store, options);
}

ProcessGroup::ProcessGroup(int rank, int size, const Store& store, const ProcessGroupOptions& options) {
  check_options(rank, size, options);
  // Uses its own connection, so that a rank that waits in a barrier does not block the program's use of the
  // store.
  impl_ = std::make_shared<Impl>(GroupInfo::whole(rank, size), "world", store,
                                 store.clone().with_prefix("group"), options);
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
  const auto begin = std::chrono::steady_clock::now();
  if (impl_->options.device.is_cuda()) wait_for_device(*impl_->who, impl_->options.device, timeout);
  const auto waited =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  Connections& connections = *impl_->connections;
  comm::PeerMonitor* const monitor = connections.diagnostics->monitor.get();
  comm::LivenessProbe probe(impl_->path, *connections.diagnostics->recorder,
                            comm::shared_memory_of(*connections.group), monitor);
  try {
    connections.barrier.arrive_and_wait(timeout - std::min(waited, timeout), std::ref(probe));
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

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks) const {
  check_members(ranks, impl_->members.size());
  const ProcessGroupOptions& options = impl_->options;
  const int color = static_cast<int>(++impl_->groups);
  const std::string name = fmt::format("sub/{}", color);
  const std::string agreed = impl_->connections->store.set_if_absent(name + "/members", describe(ranks));
  if (agreed != describe(ranks))
    refuse_part(*impl_->who, impl_->connections->store.with_prefix(name), ranks, agreed);
  const bool is_member = std::find(ranks.begin(), ranks.end(), impl_->members.rank) != ranks.end();
  // A group of one rank needs no split.
  NcclParent parent{.communicators = impl_->connections->nccl};
  if (options.nccl_split && ranks.size() > 1) {
    parent.backend = nccl_of(*impl_->connections->group, options);
    parent.color = color;
    parent.meet = [this] { barrier(impl_->options.join_timeout); };
  }
  if (!is_member) {
    if (parent.backend) {
      parent.meet();
      comm::made_within(options.join_timeout, no_communicator_text(impl_->members, options),
                        [backend = parent.backend, index = options.device.index()] {
                          comm::cuda_plugin().sit_out_split(backend, index);
                        });
    }
    return std::nullopt;
  }
  return ProcessGroup(std::make_shared<Impl>(
      subgroup(impl_->members, ranks), impl_->path + "/" + name, impl_->connections->origin,
      impl_->connections->store.with_prefix(name), options, impl_->connections->diagnostics, parent));
}

}  // namespace lockstep
