#include "cpu_backend.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "c10d_handles.hpp"
#include "communication_cpu.hpp"
#include "gloo_backend.hpp"
#include "gloo_lane.hpp"
#include "lockstep/core/error.hpp"
#include "shm/hierarchy.hpp"
#include "shm_backend.hpp"

namespace lockstep::comm {
namespace {

using Affinity = std::optional<std::vector<int>>;
using BackendType = c10d::ProcessGroup::BackendType;

/// More streams between two hosts than this fill no network better.
constexpr int kMostLanes = 4;

/// The bootstrap of ranks that share a store.
class GroupBootstrapStore final : public shm::BootstrapStore {
 public:
  explicit GroupBootstrapStore(Store store) : store_(std::move(store)) {}
  void post(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return store_.get(key, std::max(net::left_until(deadline), net::Milliseconds(1)));
  }

 private:
  Store store_;
};

BackendPointer make_gloo(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                         const CallExchange::Names* compared = nullptr) {
  return make_gloo_backend(to_intrusive(store.with_prefix("gloo").c10d_store()), members.rank, members.size(),
                           options, store.local_address(), compared);
}

CpuBackend make_plain(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                      bool compares) {
  CallExchange::Names names{members.who, {}};
  for (const int name : members.names) names.callers.push_back("rank " + std::to_string(name));
  const bool alone = members.size() == 1;
  return {BackendType::GLOO, make_gloo(members, store, options, compares && !alone ? &names : nullptr)};
}

shm::Group::Joined join_memory(const Membership& members, const Store& store,
                               const ProcessGroupOptions& options) {
  GroupBootstrapStore bootstrap(store.with_prefix("shm"));
  return shm::Group::join({.members = {members.rank, members.names, members.who},
                           .timeout = options.timeout,
                           .join_timeout = options.join_timeout,
                           .threads = at::get_num_threads()},
                          bootstrap);
}

CpuBackend make_local(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                      const Affinity& affinity, std::shared_ptr<shm::Group> group) {
  SharedMemory memory;
  memory.cpu = communication_cpu(affinity, group->step_sync());
  memory.transport = std::make_shared<shm::ShmTransport>(*group);
  memory.group = std::move(group);
  memory.make_fallback = [members, store, options] { return make_gloo(members, store, options); };
  return {BackendType::CUSTOM, make_shm_backend(members.rank, members.size(), std::move(memory))};
}

/// Those who are number `lane` on their hosts: "rank 0 on node0", "rank 2 on node1".
std::vector<std::string> joined_by(int lane, const shm::Group::Joined& joined) {
  std::vector<std::string> names;
  for (const auto& part : joined.hosts.ranks)
    names.push_back(joined.members.called(part.at(static_cast<std::size_t>(lane))));
  return names;
}

std::unique_ptr<shm::InterHostTransport> make_lane(int number, const Membership& members, const Store& store,
                                                   const ProcessGroupOptions& options,
                                                   const shm::Group::Joined& joined, bool compares) {
  const auto corner = store.with_prefix("lane/" + std::to_string(number));
  auto gloo = make_gloo_backend(to_intrusive(corner.c10d_store()), joined.hosts.own, joined.hosts.count(),
                                options, store.local_address());
  return make_gloo_transport(std::move(gloo),
                             {{members.who, joined_by(number, joined)}, members.size(), compares},
                             FailureNote(store.with_prefix("failure")));
}

CpuBackend make_spanning(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                         const Affinity& affinity, bool compares, shm::Group::Joined joined) {
  const std::shared_ptr<shm::Group> group = std::move(joined.group);
  shm::Hierarchy::Parts parts{.group = group,
                              .hosts = joined.hosts,
                              .rank = members.rank,
                              .lanes = std::min(kMostLanes, joined.hosts.least())};
  const int member = group->step_sync().rank();
  if (member < parts.lanes) parts.lane = make_lane(member, members, store, options, joined, compares);
  SharedMemory memory{.group = group,
                      .transport = std::make_shared<shm::Hierarchy>(std::move(parts)),
                      .flat = make_gloo(members, store, options),
                      .make_fallback = nullptr,
                      .cpu = communication_cpu(affinity, group->step_sync())};
  return {BackendType::CUSTOM, make_shm_backend(members.rank, members.size(), std::move(memory))};
}

}  // namespace

CpuBackend make_cpu_backend(const Membership& members, const Store& store, const ProcessGroupOptions& options,
                            const CpuBackendOptions& cpu) {
  const auto gloo = [&] { return make_plain(members, store, options, cpu.compares); };
  if (options.backend == CommBackend::gloo) return gloo();
  const Affinity affinity = cpu.binds ? communication_affinity(process_environment()) : std::vector<int>();
  auto joined = join_memory(members, store, options);
  if (joined.obstacle.empty()) return make_local(members, store, options, affinity, std::move(joined.group));
  if (options.backend == CommBackend::shm) {
    throw CommunicationError(members.who + ": the shm backend was asked for, but " + joined.obstacle +
                             ": use 'auto' or 'gloo'");
  }
  return joined.group ? make_spanning(members, store, options, affinity, cpu.compares, std::move(joined))
                      : gloo();
}

}  // namespace lockstep::comm
