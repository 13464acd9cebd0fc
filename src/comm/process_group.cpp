#include "lockstep/comm/process_group.hpp"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <set>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "comm/backend/cpu_backend.hpp"
#include "comm/c10d_handles.hpp"
#include "comm/cuda/made_within.hpp"
#include "comm/cuda/nccl_store.hpp"
#include "comm/cuda/plugin.hpp"
#include "comm/cuda/shared_device.hpp"
#include "comm/diagnostics/library_log.hpp"
#include "comm/diagnostics/liveness_probe.hpp"
#include "comm/diagnostics/waiting_text.hpp"
#include "comm/errors.hpp"
#include "comm/group_join.hpp"
#include "comm/process_group_impl.hpp"
#include "comm/transport/transport.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

void check_options(int rank, int size, const ProcessGroupOptions& options) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw UsageError("a process group needs 0 <= rank < size; rank is " + std::to_string(rank) +
                     " and size is " + std::to_string(size));
  }
  constexpr std::chrono::hours kYear(24 * 365);  // Longer times overflow in the arithmetic of clocks.
  for (const auto timeout : {options.timeout, options.join_timeout}) {
    if (timeout.count() > 0 && timeout <= kYear) continue;
    throw UsageError("a process group's timeouts must be longer than 0 ms and at most a year");
  }
  if (!options.device.is_cpu() && !options.device.is_cuda()) {
    throw UsageError("a process group's device must be the CPU or a CUDA device, not " +
                     options.device.str());
  }
  if (options.device.is_cuda() && !options.device.has_index()) {
    throw UsageError("a process group's CUDA device needs its index, for example cuda:0");
  }
  if (options.backend == CommBackend::nccl && !options.device.is_cuda()) {
    throw UsageError("the nccl backend carries CUDA tensors only, and this group's device is " +
                     options.device.str() + ": use 'auto', 'shm' or 'gloo' for the CPU");
  }
  if (options.backend == CommBackend::shm && options.device.is_cuda()) {
    throw UsageError("the shm backend carries CPU tensors only, and this group's device is " +
                     options.device.str() + ": use 'auto', which takes it for the CPU tensors");
  }
}

bool has_nccl(const ProcessGroupOptions& options) {
  return options.device.is_cuda() && options.backend != CommBackend::gloo;
}

/// NCCL's backend in `group`, or null.
c10::intrusive_ptr<c10d::Backend> nccl_of(const c10d::ProcessGroup& group,
                                          const ProcessGroupOptions& options) {
  if (!has_nccl(options)) return {};
  return group.getBackend(BackendType::NCCL);
}

/// Makes what carries a group's CPU tensors.
using MakeCpuBackend = std::function<c10::intrusive_ptr<comm::CpuBackend>()>;

BackendType add_cpu_backend(c10d::ProcessGroup& group, const ProcessGroupOptions& options,
                            const MakeCpuBackend& make) {
  const auto backend = make();
  const auto type = backend->getBackendName() == "gloo" ? BackendType::GLOO : BackendType::CUSTOM;
  group.setBackend(at::kCPU, type, backend);
  if (options.device.is_cuda() && options.backend == CommBackend::gloo)
    group.setBackend(at::kCUDA, type, backend);
  return type;
}

/// Every rank of the group reads the same, so all of them fail or none.
void check_devices(const comm::GroupInfo& members, const Store& store) {
  std::vector<comm::RankDevice> devices;
  for (const int name : members.names)
    devices.push_back({name, store.get("device/" + std::to_string(name), std::chrono::seconds(1))});
  if (const std::string text = comm::shared_device_text(devices); !text.empty())
    throw UsageError(members.who + ": " + text);
}

std::string no_communicator_text(const comm::GroupInfo& members, const ProcessGroupOptions& options) {
  return members.who + ": NCCL made no communicator within " + std::to_string(options.join_timeout.count()) +
         " ms, although all ranks came for it. See that the hosts reach each other by the network that NCCL "
         "takes (NCCL_SOCKET_IFNAME), and what it waits for (NCCL_DEBUG=INFO)";
}

/// NCCL waits without limit for a rank that does not come, so ranks meet right before.
void meet_before_nccl(const comm::GroupInfo& members, const Store& store,
                      const ProcessGroupOptions& options) {
  const std::string own = std::to_string(members.names.at(static_cast<std::size_t>(members.rank)));
  store.set("device/" + own, comm::cuda_plugin().device_uuid(options.device.index()));
  comm::StoreBarrier meeting(store, members);
  meeting.arrive_and_wait(options.join_timeout);
  check_devices(members, store);
}

/// Its operations are in c10d's own flight recorder.
void add_nccl(c10d::ProcessGroup& group, const comm::GroupInfo& members, const std::string& path,
              const Store& store, const ProcessGroupOptions& options, const NcclParent& nccl) {
  nccl.backend ? nccl.meet() : meet_before_nccl(members, store.with_prefix("nccl_join"), options);
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

std::shared_ptr<c10d::ProcessGroup> make_group(const comm::GroupInfo& members, const std::string& path,
                                               const Store& store, const ProcessGroupOptions& options,
                                               const MakeCpuBackend& make_cpu_backend,
                                               const NcclParent& nccl) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(comm::to_intrusive(store.c10d_store()), members.rank,
                                                       members.size());
  const bool with_nccl = has_nccl(options);
  if (options.device.is_cuda()) {
    comm::cuda_plugin().set_device(options.device.index());
    group->setBoundDeviceId(options.device);
  }
  auto type = BackendType::NCCL;
  if (options.backend != CommBackend::nccl) type = add_cpu_backend(*group, options, make_cpu_backend);
  if (with_nccl) add_nccl(*group, members, path, store, options, nccl);
  group->setDefaultBackend(with_nccl ? BackendType::NCCL : type);
  group->setGroupName(path);
  return comm::to_shared(std::move(group));
}

std::string describe(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return "[" + text + "]";
}

void check_members(const std::vector<int>& ranks, int size) {
  const std::set<int> distinct(ranks.begin(), ranks.end());
  const bool in_range = !ranks.empty() && *distinct.begin() >= 0 && *distinct.rbegin() < size;
  if (!in_range || distinct.size() != ranks.size()) {
    throw UsageError("new_group" + describe(ranks) + ": expected one or more different ranks from 0 to " +
                     std::to_string(size - 1));
  }
}

/// Those who already wait for the other list's members learn it too.
[[noreturn]] void refuse_part(const std::string& who, const Store& store, const std::vector<int>& ranks,
                              const std::string& agreed) {
  const std::string words = who + ": new_group" + describe(ranks) +
                            " here, but another rank calls new_group" + agreed +
                            ": every rank must pass the same list, in the same order of calls";
  comm::abort_join(store, words);
  throw CommunicationError(words);
}

/// What the missing ranks do instead, if they say so.
[[noreturn]] void add_doings(const TimeoutError& error, comm::PeerMonitor* monitor) {
  constexpr std::chrono::seconds kAnswerTime(2);
  const std::string doings =
      monitor == nullptr ? "" : comm::doings_text(monitor->ask(kAnswerTime), error.missing_ranks());
  if (doings.empty()) throw error;
  throw TimeoutError(std::string(error.what()) + ". Now " + doings, error.missing_ranks());
}

}  // namespace

CommBackend comm_backend_from(const std::string& name) {
  if (name == "auto") return CommBackend::automatic;
  if (name == "gloo") return CommBackend::gloo;
  if (name == "nccl") return CommBackend::nccl;
  if (name == "shm") return CommBackend::shm;
  throw UsageError("'" + name + "' is no communication backend: expected auto, shm, gloo or nccl");
}

ProcessGroup::Impl::Impl(const comm::GroupInfo& group_members, std::string group_path, const Store& origin,
                         const Store& group_store, const ProcessGroupOptions& group_options,
                         std::shared_ptr<comm::Diagnostics> diagnostics, const NcclParent& nccl_parent)
    : members(group_members),
      path(std::move(group_path)),
      who(std::make_shared<std::string>(members.who)),
      options(group_options),
      is_outermost(diagnostics == nullptr) {
  const bool only_gloo = options.device.is_cpu() || options.backend == CommBackend::gloo;
  comm::settle_library_log(only_gloo ? comm::LibraryLog::none : comm::LibraryLog::errors);
  comm::StoreBarrier join = comm::join_group(group_store, members, options.join_timeout);
  if (is_outermost) {
    diagnostics = comm::Diagnostics::make(
        members, group_store.with_prefix("peer_monitor"),
        options.diagnostics ? *options.diagnostics : DiagnosticsOptions::from_environment());
  }
  const auto make_cpu_backend = [&] {
    auto [transport, cpu] = comm::make_transport(
        members, group_store, options,
        {.binds = is_outermost, .verifies = diagnostics->options.check != CollectiveCheckLevel::off});
    auto tracker = std::make_shared<comm::OperationTracker>(
        diagnostics, comm::OperationTracker::Place{members, path, options.timeout}, transport->name(),
        group_store);
    return c10::make_intrusive<comm::CpuBackend>(members.rank, members.size(), std::move(transport),
                                                 std::move(tracker), cpu);
  };
  NcclParent nccl = nccl_parent;
  if (has_nccl(options) && !nccl.communicators)
    nccl.communicators =
        std::make_shared<comm::NcclCommunicators>(comm::rooted(group_store.with_prefix("nccl")));
  auto group = comm::translated(
      [&] { return make_group(members, path, group_store, options, make_cpu_backend, nccl); },
      [&] { return *who + ": setting up the process group failed"; });
  auto* const cpu = comm::cpu_backend_of(*group);
  connections = std::make_unique<Connections>(Connections{
      diagnostics, origin, group_store, comm::StoreBarrier(group_store, members), std::move(group), cpu});
  connections->nccl = nccl.communicators;
  if (is_outermost && connections->nccl) connections->nccl->set_end(nccl_end());
  // Nobody goes on, and perhaps away, before everybody is connected.
  join.arrive_and_wait(options.join_timeout);
}

/// The last to go may be a part of this group, so it keeps what it needs, the store's host among it.
comm::NcclCommunicators::End ProcessGroup::Impl::nccl_end() const {
  auto meet = [barrier = comm::StoreBarrier(connections->store.with_prefix("nccl_end"), members),
               host = connections->origin, group = connections->group, name = path,
               diagnostics = connections->diagnostics, timeout = options.timeout]() mutable {
    comm::LivenessProbe look(*group, name, *diagnostics);
    barrier.arrive_and_wait(timeout, [&](const auto& missing, auto waited) { return look(missing, waited); });
  };
  return {*who, [index = options.device.index()] { comm::cuda_plugin().synchronize(index); },
          std::move(meet)};
}

ProcessGroup::Impl::~Impl() {
  // When an exception ends this rank, its connections are left to the end of the process. c10d's destructor
  // would wait for operations in flight, up to their timeout; and a closed connection would make other ranks
  // fail, and report it, before this rank has reported the cause.
  // Those who share memory with this rank are told without a closed connection.
  if (!connections) return;
  if (std::uncaught_exceptions() > 0) {
    comm::leave_group(*connections->group);
    // Kernels that wait for other ranks let go, so that nothing waits for them while this process ends.
    if (const auto nccl = std::move(connections->nccl)) nccl->abort(nccl_of(*connections->group, options));
    static_cast<void>(connections.release());
    return;
  }
  // All ranks meet for it, so none has said yet that it leaves.
  connections->nccl.reset();
  if (is_outermost && connections->diagnostics->monitor) connections->diagnostics->monitor->announce_exit();
}

ProcessGroup ProcessGroup::init(const World& world, const ProcessGroupOptions& options) {
  check_options(world.rank, world.world_size, options);
  const Heartbeat::Waiting beat(process_heartbeat(), "joining the job", 0);
  const Store store =
      world.world_size == 1 ? Store::in_memory() : Store::connect(world, options.join_timeout);
  return ProcessGroup(world.rank, world.world_size, store, options);
}

ProcessGroup::ProcessGroup(int rank, int size, const Store& store, const ProcessGroupOptions& options) {
  check_options(rank, size, options);
  // A connection of its own: a rank that waits in a barrier must not keep the program's own use of the store
  // waiting.
  impl_ = std::make_shared<Impl>(comm::GroupInfo::whole(rank, size), "world", store,
                                 store.clone().with_prefix("group"), options);
}

ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

int ProcessGroup::rank() const noexcept { return impl_->members.rank; }
int ProcessGroup::size() const noexcept { return impl_->members.size(); }
const at::Device& ProcessGroup::device() const noexcept { return impl_->options.device; }
std::chrono::milliseconds ProcessGroup::timeout() const noexcept { return impl_->options.timeout; }
Store ProcessGroup::new_namespace() const {
  return impl_->connections->store.with_prefix("namespace/" + std::to_string(++impl_->namespaces));
}
const std::shared_ptr<c10d::ProcessGroup>& ProcessGroup::c10d_process_group() const {
  return impl_->connections->group;
}

void ProcessGroup::barrier() const { barrier(impl_->options.timeout); }

void ProcessGroup::barrier(std::chrono::milliseconds timeout) const {
  if (impl_->options.device.is_cuda()) comm::cuda_plugin().synchronize(impl_->options.device.index());
  Connections& connections = *impl_->connections;
  comm::LivenessProbe look(*connections.group, impl_->path, *connections.diagnostics);
  try {
    connections.barrier.arrive_and_wait(
        timeout, [&](const auto& missing, auto waited) { return look(missing, waited); });
  } catch (const TimeoutError& error) {
    add_doings(error, connections.diagnostics->monitor.get());
  } catch (const CommunicationError& error) {
    look.tell_the_others(error.what());
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
  const std::string name = "sub/" + std::to_string(color);
  const std::string agreed = impl_->connections->store.set_if_absent(name + "/members", describe(ranks));
  if (agreed != describe(ranks))
    refuse_part(*impl_->who, impl_->connections->store.with_prefix(name), ranks, agreed);
  const auto place = std::find(ranks.begin(), ranks.end(), impl_->members.rank);
  // Not for groups of one, for which there is nothing to split.
  NcclParent parent{.communicators = impl_->connections->nccl};
  if (options.nccl_split && ranks.size() > 1) {
    parent.backend = nccl_of(*impl_->connections->group, options);
    parent.color = color;
    parent.meet = [this] { barrier(impl_->options.join_timeout); };
  }
  if (place == ranks.end()) {
    if (parent.backend) {
      parent.meet();
      comm::made_within(options.join_timeout, no_communicator_text(impl_->members, options),
                        [backend = parent.backend, index = options.device.index()] {
                          comm::cuda_plugin().sit_out_split(backend, index);
                        });
    }
    return std::nullopt;
  }
  const int rank = static_cast<int>(place - ranks.begin());
  return ProcessGroup(std::make_shared<Impl>(
      impl_->members.part(ranks, rank), impl_->path + "/" + name, impl_->connections->origin,
      impl_->connections->store.with_prefix(name), options, impl_->connections->diagnostics, parent));
}

}  // namespace lockstep
