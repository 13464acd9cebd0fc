#include "comm/process_group_impl.hpp"

#include <fmt/format.h>

#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "comm/c10d_handles.hpp"
#include "comm/cuda/device_sharing.hpp"
#include "comm/cuda/plugin.hpp"
#include "comm/diagnostics/liveness_probe.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "comm/planner_link.hpp"
#include "comm/set_up_record.hpp"
#include "comm/transport/tensor_memory.hpp"
#include "comm/transport/transport.hpp"
#include "core/elastic/recovery_messages.hpp"
#include "core/runtime/call_within.hpp"
#include "core/text.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "shm/group.hpp"

namespace lockstep {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

bool has_nccl(const ProcessGroupOptions& options) {
  return options.device.is_cuda() && options.backend != CommBackend::gloo;
}

/// Whether the launcher replaces lost ranks, as far as is known before the training.
bool may_be_replaced(const GroupInfo& members, const ProcessGroupOptions& options) {
  if (members.size() == 1 || options.device.is_cuda()) return false;
  const auto recoveries = find_variable(process_environment(), elastic::kRecoveriesVariable);
  return recoveries && parse_whole_number(*recoveries, 1).has_value();
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
  const auto backend = call_within(options.join_timeout, no_communicator_text(members, options),
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

}  // namespace

ProcessGroup::Impl::Impl(const GroupInfo& group_members, std::string group_path, const Store& origin,
                         const Store& group_store, const ProcessGroupOptions& group_options,
                         std::uint64_t first_generation)
    : members(group_members),
      path(std::move(group_path)),
      who(std::make_shared<std::string>(members.who)),
      options(group_options),
      is_outermost(true),
      root(group_store),
      family(std::make_shared<Family>()),
      generation(first_generation == 1 ? 1 : first_generation - 1),
      attempted(generation.load()) {
  if (first_generation == 1) {
    connections = connect(origin, store_of(1), nullptr, {});
    return;
  }
  family->is_newcomer = true;
  family->set_up = std::make_shared<comm::LonelySetUp>(
      *who,
      [origin, rank = members.rank](const std::string& text) { comm::report_refusal(origin, rank, text); });
  connections = provisional(origin, nullptr);
}

ProcessGroup::Impl::Impl(const GroupInfo& group_members, std::string group_path, const Impl& parent,
                         const Store& group_store, const NcclParent& nccl_parent)
    : members(group_members),
      path(std::move(group_path)),
      who(std::make_shared<std::string>(members.who)),
      options(parent.options),
      is_outermost(false),
      root(parent.root),
      family(parent.family),
      generation(parent.generation.load()) {
  const Connections& known = *parent.connections;
  connections = family->set_up ? provisional(known.origin, known.diagnostics)
                               : connect(known.origin, group_store, known.diagnostics, nccl_parent);
}

std::unique_ptr<Connections> ProcessGroup::Impl::provisional(
    const Store& origin, std::shared_ptr<comm::Diagnostics> diagnostics) const {
  if (has_nccl(options)) throw UsageError(*who + ": a group with NCCL cannot be joined by a new process");
  const Store own = Store::in_memory();
  if (!diagnostics) {
    DiagnosticsOptions wanted =
        options.diagnostics ? *options.diagnostics : DiagnosticsOptions::from_environment();
    wanted.check = CollectiveCheckLevel::off;
    diagnostics = std::make_shared<comm::Diagnostics>(members, own.with_prefix("peer_monitor"), wanted);
    diagnostics->set_up = std::make_shared<comm::SetUpRecord>(root.with_prefix("set_up"),
                                                              diagnostics->recorder, family->set_up);
  }
  auto tracker = std::make_shared<comm::OperationTracker>(
      diagnostics, comm::OperationTracker::Scope{members, path, options.timeout}, "none", own);
  const auto cpu = c10::make_intrusive<comm::CpuBackend>(
      members.rank, members.size(), comm::provisional_transport(family->set_up), std::move(tracker), -1);
  return std::make_unique<Connections>(
      Connections{diagnostics, origin, own, coordination::Barrier(comm::make_session(own, members)),
                  make_group(members, path, own, options, cpu, {}), cpu.get()});
}

std::unique_ptr<Connections> ProcessGroup::Impl::connect(const Store& origin, const Store& group_store,
                                                         std::shared_ptr<comm::Diagnostics> diagnostics,
                                                         NcclParent nccl) {
  const bool only_gloo = options.device.is_cpu() || options.backend == CommBackend::gloo;
  comm::settle_library_log(only_gloo ? comm::LibraryLog::none : comm::LibraryLog::errors);
  // A group that is formed again may be aborted meanwhile, when a further rank is lost.
  coordination::Barrier::Probe probe;
  if (family->is_reforming) {
    probe = [this](const std::vector<int>&, std::chrono::milliseconds) {
      const std::lock_guard lock(family->mutex);
      return family->reform_abort;
    };
  }
  coordination::Barrier join = comm::join_group(group_store, members, options.join_timeout, probe);
  if (!diagnostics) {
    diagnostics = std::make_shared<comm::Diagnostics>(
        members, group_store.with_prefix("peer_monitor"),
        options.diagnostics ? *options.diagnostics : DiagnosticsOptions::from_environment());
    if (attempted == 1 && may_be_replaced(members, options))
      diagnostics->set_up =
          std::make_shared<comm::SetUpRecord>(root.with_prefix("set_up"), diagnostics->recorder, nullptr);
  }
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
  auto made = std::make_unique<Connections>(Connections{
      diagnostics, origin, group_store, coordination::Barrier(comm::make_session(group_store, members)),
      std::move(group), cpu.get()});
  made->nccl = nccl.communicators;
  if (is_outermost && made->nccl) made->nccl->set_end(nccl_end(*made));
  // No rank may continue, and perhaps exit, before all are connected.
  join.arrive_and_wait(options.join_timeout, probe, comm::kJoinLook);
  return made;
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
comm::NcclCommunicators::End ProcessGroup::Impl::nccl_end(const Connections& made) const {
  auto meet = [barrier =
                   coordination::Barrier(comm::make_session(made.store.with_prefix("nccl_end"), members)),
               host = made.origin, group = made.group, name = path, diagnostics = made.diagnostics,
               timeout = options.timeout]() mutable {
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
  // Operations of an aborted group have ended, and the others know it: nothing is left to wait for.
  if (std::uncaught_exceptions() > 0 && !is_aborted()) {
    if (auto* const memory = comm::shared_memory_of(*connections->group)) memory->step_sync().leave(true);
    // Ends kernels that wait for other ranks, so that nothing waits for them while this process ends.
    if (const auto nccl = std::move(connections->nccl)) nccl->abort(nccl_backend());
    static_cast<void>(connections.release());
    return;
  }
  // All ranks synchronize here, so none may have announced its exit yet.
  connections->nccl.reset();
  if (is_outermost && connections->diagnostics->monitor) connections->diagnostics->monitor->announce_exit();
}

/// Bypasses c10d's dispatcher, which costs more than a small operation and has nothing to select here.
c10d::Backend& ProcessGroup::Impl::backend_of(const at::Tensor& tensor) const {
  return *connections->group->getBackend(tensor.device().type());
}

void ProcessGroup::Impl::check_rank(const char* operation, const char* role, int other) const {
  if (other >= 0 && other < members.size()) return;
  throw UsageError(fmt::format("{}: {} {} is not a rank of this group: expected 0 to {}", operation, role,
                               other, members.size() - 1));
}

void ProcessGroup::Impl::check_message(const char* operation, const P2POp& message) const {
  const bool receives = message.op == P2POp::Op::irecv;
  comm::check_in_one_piece(operation, message.tensor);
  check_rank(operation, receives ? "source" : "destination", message.peer);
  if (message.peer != members.rank) return;
  throw UsageError(fmt::format("{}: rank {} cannot {} itself", operation, members.rank,
                               receives ? "receive from" : "send to"));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::Impl::nccl_backend() const {
  if (!has_nccl(options)) return {};
  return connections->group->getBackend(BackendType::NCCL);
}

void ProcessGroup::Impl::sit_out_split(const NcclParent& parent) const {
  parent.meet();
  call_within(options.join_timeout, no_communicator_text(members, options),
              [backend = parent.backend, index = options.device.index()] {
                comm::cuda_plugin().sit_out_split(backend, index);
              });
}

void wait_for_device(const std::string& who, const at::Device& device, std::chrono::milliseconds limit) {
  call_within(limit,
              fmt::format("{}: {} has not finished its queued work within {} ms. An operation that "
                          "another rank has not started, or a kernel that does not end, blocks it.",
                          who, device.str(), limit.count()),
              [index = device.index()] { comm::cuda_plugin().synchronize(index); });
}

}  // namespace lockstep
