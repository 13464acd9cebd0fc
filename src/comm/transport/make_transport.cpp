#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "comm/store_session.hpp"
#include "comm/transport/gloo_transport.hpp"
#include "lockstep/core/error.hpp"
#include "shm/communication_cpu.hpp"

namespace lockstep::comm {
namespace {

/// More streams between two hosts than this fill no network better.
constexpr int kMaxLeaders = 4;

/// Where ranks that share a store leave their addresses.
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

class Factory {
 public:
  Factory(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
          const TransportOptions& how)
      : info_(info), store_(store), options_(options), how_(how) {}

  /// `verifies`: unless the hierarchical collectives above do.
  std::unique_ptr<Transport> gloo(bool verifies) const {
    FingerprintExchange::Names names{info_.who, {}};
    for (const int name : info_.names) names.callers.push_back(fmt::format("rank {}", name));
    const auto prefixed = store_.with_prefix("gloo");
    auto gloo = std::make_unique<GlooTransport>(prefixed, info_.rank, info_.size(), options_);
    if (verifies) gloo->verify_by(fingerprints_of(prefixed, std::move(names), info_.rank));
    return gloo;
  }

  shm::Group::Joined join_memory() const {
    GroupBootstrapStore bootstrap(store_.with_prefix("shm"));
    return shm::Group::join({.members = info_,
                             .timeout = options_.timeout,
                             .join_timeout = options_.join_timeout,
                             .threads = at::get_num_threads()},
                            bootstrap);
  }

  std::unique_ptr<Transport> hierarchical(shm::Group::Joined joined) const {
    const std::shared_ptr<shm::Group> group = std::move(joined.group);
    shm::HierarchicalCollectives::Parts parts{.group = group,
                                              .hosts = joined.hosts,
                                              .rank = info_.rank,
                                              .leaders = std::min(kMaxLeaders, joined.hosts.least())};
    const int member = group->step_sync().rank();
    if (member < parts.leaders) parts.transport = inter_host(member, joined, group);
    auto collectives = std::make_unique<shm::HierarchicalCollectives>(std::move(parts));
    return make_hierarchical_transport(group, std::move(collectives), gloo(false));
  }

 private:
  /// Joins those who are leader number `leader` on their hosts: "rank 0 on node0", "rank 2 on node1".
  std::unique_ptr<shm::InterHostTransport> inter_host(int leader, const shm::Group::Joined& joined,
                                                      const std::shared_ptr<shm::Group>& host) const {
    InterHostPlace place{{info_.who, {}}, info_.size(), [host] {
                           return host->step_sync().loss_among(host->step_sync().members().names);
                         }};
    for (const auto& part : joined.hosts.ranks)
      place.names.callers.push_back(joined.members.called(part.at(static_cast<std::size_t>(leader))));
    const auto prefixed = store_.with_prefix(fmt::format("leader/{}", leader));
    auto gloo = std::make_unique<GlooTransport>(prefixed, joined.hosts.own, joined.hosts.count(), options_);
    auto fingerprints = how_.verifies ? fingerprints_of(prefixed, place.names, joined.hosts.own) : nullptr;
    return make_gloo_inter_host_transport(std::move(gloo), std::move(fingerprints), std::move(place),
                                          FirstFailure(store_.with_prefix("failure")));
  }

  /// Null for one rank alone, which has nobody to differ from.
  std::unique_ptr<FingerprintExchange> fingerprints_of(const Store& store, FingerprintExchange::Names names,
                                                       int rank) const {
    const int size = static_cast<int>(names.callers.size());
    if (size == 1) return nullptr;
    return std::make_unique<FingerprintExchange>(
        store.with_prefix("fingerprints"), std::move(names),
        FingerprintExchange::Options{.rank = rank,
                                     .address = offered_address(store, options_, size),
                                     .timeout = options_.timeout,
                                     .join_timeout = options_.join_timeout});
  }

  const GroupInfo& info_;
  const Store& store_;
  const ProcessGroupOptions& options_;
  const TransportOptions& how_;
};

}  // namespace

MadeTransport make_transport(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
                             const TransportOptions& how) {
  const Factory make(info, store, options, how);
  if (options.backend == CommBackend::gloo) return {make.gloo(how.verifies)};
  const auto affinity = how.binds ? shm::communication_affinity(process_environment())
                                  : std::optional<std::vector<int>>(std::in_place);
  auto joined = make.join_memory();
  if (!joined.obstacle.empty() && options.backend == CommBackend::shm) {
    throw CommunicationError(fmt::format("{}: the shm backend was asked for, but {}: use 'auto' or 'gloo'",
                                         info.who, joined.obstacle));
  }
  if (!joined.group) return {make.gloo(how.verifies)};
  const int cpu = shm::communication_cpu(affinity, joined.group->step_sync());
  if (joined.obstacle.empty()) return {make_shm_transport(std::move(joined.group)), cpu};
  return {make.hierarchical(std::move(joined)), cpu};
}

}  // namespace lockstep::comm
