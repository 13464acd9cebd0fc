#include "comm/transport/hierarchical_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/errors.hpp"
#include "comm/first_failure.hpp"
#include "comm/transport/gloo_transport.hpp"
#include "lockstep/core/error.hpp"
#include "shm/hierarchical_collectives.hpp"

namespace lockstep::comm {
namespace {

using shm::Operation;
using shm::Reduction;

/// More streams between two hosts do not increase the bandwidth.
constexpr int kMaxLeaders = 4;

/// If a rank ends, its neighbors notice it within half a second and report the reason.
constexpr std::chrono::milliseconds kNotice{1500};
/// How often the host's own ranks are checked meanwhile: connections close before their process has ended.
constexpr std::chrono::milliseconds kCheckInterval{50};

bool has_data_for_each_pair(Operation operation) {
  return operation == Operation::gather || operation == Operation::scatter ||
         operation == Operation::all_to_all;
}

/// A leader of its host. Gloo connects it to one leader of each other host, so the ranks of `gloo` and
/// `fingerprints` are the hosts. `ranks`: number of ranks of the whole group, for averages; `host`: this
/// host's group. `fingerprints` is null if calls are not verified.
class GlooInterHostTransport final : public shm::InterHostTransport {
 public:
  GlooInterHostTransport(GroupInfo leaders, int ranks, std::shared_ptr<shm::Group> host,
                         std::unique_ptr<GlooTransport> gloo,
                         std::unique_ptr<FingerprintExchange> fingerprints, FirstFailure failure)
      : leaders_(std::move(leaders)),
        ranks_(ranks),
        host_(std::move(host)),
        gloo_(std::move(gloo)),
        fingerprints_(std::move(fingerprints)),
        failure_(std::move(failure)) {}

  void announce(const shm::Call& call) override {
    call_ = shm::describe(call);
    if (fingerprints_) guarded([&] { fingerprints_->announce(call_); });
  }
  void agree() override {
    if (fingerprints_) guarded([&] { fingerprints_->agree(); });
  }

  void run(const shm::Collective& collective) override {
    guarded([&] { gloo_->run(collective); });
    if (collective.reduction == Reduction::avg) view_of(collective.own, collective.elements).div_(ranks_);
  }
  void beside(const std::function<void()>& body) override {
    try {
      body();
    } catch (...) {
      explain(call_);
    }
  }
  /// Posts the reason first: a rank that finds the connection closed reads it.
  void abandon(const char* failure_text) noexcept override {
    if (std::exchange(abandoned_, true)) return;
    failure_.post(failure_text);
    abort();
  }
  void abort() noexcept override {
    if (fingerprints_) fingerprints_->close();
    try {
      gloo_->close();
    } catch (const std::exception&) {
      // The connections close when the process ends at the latest.
    }
  }

 private:
  template <class Body>
  void guarded(const Body& body) {
    try {
      body();
    } catch (const Error&) {
      throw;  // The calls of the hosts differ, and all hosts know it.
    } catch (...) {
      std::vector<std::string> names;
      for (int leader = 0; leader < leaders_.size(); ++leader) names.push_back(leaders_.called(leader));
      explain(fmt::format("{} between {}", call_, fmt::join(names, ", ")));
    }
  }
  [[noreturn]] void explain(const std::string& what) {
    host_->step_sync().throw_if_aborted([&] { return what; });
    try {
      rethrow_as_communication_error(fmt::format("{}: {} failed", leaders_.who, what));
    } catch (const TimeoutError& error) {
      throw TimeoutError(error.what(), error.missing_ranks());
    } catch (const CommunicationError& error) {
      const std::string reason = reason_of_failure();
      throw CommunicationError(reason.empty() ? error.what() : fmt::format("{} [{}]", reason, error.what()));
    }
  }

  /// How a rank of this host has ended, or another host's posted failure; "" if neither is found in time.
  std::string reason_of_failure() const {
    const shm::StepSync& here = host_->step_sync();
    for (auto waited = kCheckInterval; waited <= kNotice; waited += kCheckInterval) {
      if (std::string loss = here.loss_among(here.members().names); !loss.empty()) return loss;
      if (std::string posted = failure_.read(kCheckInterval); !posted.empty()) return posted;
    }
    return "";
  }

  GroupInfo leaders_;
  int ranks_;
  std::shared_ptr<shm::Group> host_;
  std::unique_ptr<GlooTransport> gloo_;
  std::unique_ptr<FingerprintExchange> fingerprints_;
  FirstFailure failure_;
  std::string call_;  // The last announced call.
  bool abandoned_ = false;
};

/// Runs `collectives`, which verify the calls. `flat` connects all ranks. It is used for messages and for
/// operations with separate data per pair of ranks (gather, scatter, all_to_all).
class HierarchicalTransport final : public Transport {
 public:
  HierarchicalTransport(std::string layout, std::shared_ptr<shm::Group> group,
                        std::unique_ptr<shm::HierarchicalCollectives> collectives,
                        std::unique_ptr<Transport> flat)
      : layout_(std::move(layout)),
        group_(std::move(group)),
        collectives_(std::move(collectives)),
        flat_(std::move(flat)) {}

  const char* name() const override { return "shm+gloo"; }
  std::string layout() const override { return layout_; }
  shm::Group* memory() const override { return group_.get(); }

  void begin(const CollectiveCall& call) override { flat_->begin(call); }
  void run(const shm::Collective& collective) override {
    if (has_data_for_each_pair(collective.operation))
      collectives_->elsewhere(collective, [&] { flat_->run(collective); });
    else
      collectives_->run(collective);
  }

  std::unique_ptr<Message> send(const at::Tensor& tensor, int destination, int tag) override {
    return flat_->send(tensor, destination, tag);
  }
  std::unique_ptr<Message> recv(const at::Tensor& tensor, int source, int tag) override {
    return flat_->recv(tensor, source, tag);
  }
  /// The shared memory first: a leader whose connections close finds the reason there.
  void abort(const std::string& reason) override {
    group_->abort(reason);
    collectives_->abort();
    flat_->abort(reason);
  }

 private:
  std::string layout_;
  std::shared_ptr<shm::Group> group_;
  std::unique_ptr<shm::HierarchicalCollectives> collectives_;
  std::unique_ptr<Transport> flat_;
};

/// "shm+gloo, hosts of ranks 0,1 and 2,3".
std::string layout_of(const shm::HostTopology& hosts) {
  std::vector<std::string> parts;
  for (const auto& ranks : hosts.ranks) parts.push_back(fmt::format("{}", fmt::join(ranks, ",")));
  return fmt::format("shm+gloo, hosts of ranks {}", fmt::join(parts, " and "));
}

/// Connects the leaders with index `leader` of all hosts: "rank 0 on node0", "rank 2 on node1".
std::unique_ptr<shm::InterHostTransport> inter_host_transport(
    int leader, const shm::Group::Joined& joined, int ranks, const std::shared_ptr<shm::Group>& host,
    const Store& store, const ProcessGroupOptions& options, bool verifies) {
  std::vector<int> members;
  for (const auto& part : joined.hosts.ranks) members.push_back(part.at(static_cast<std::size_t>(leader)));
  const GroupInfo leaders = joined.members.part(members);
  const auto prefixed = store.with_prefix(fmt::format("leader/{}", leader));
  auto gloo = std::make_unique<GlooTransport>(prefixed, leaders, options);
  auto fingerprints = verifies ? fingerprint_exchange(prefixed, leaders, options) : nullptr;
  return std::make_unique<GlooInterHostTransport>(leaders, ranks, host, std::move(gloo),
                                                  std::move(fingerprints),
                                                  FirstFailure(store.with_prefix("failure"), leaders));
}

}  // namespace

std::unique_ptr<Transport> hierarchical_transport(const GroupInfo& info, shm::Group::Joined joined,
                                                  const Store& store, const ProcessGroupOptions& options,
                                                  bool verifies) {
  const std::shared_ptr<shm::Group> group = std::move(joined.group);
  shm::HierarchicalCollectives::Parts parts{.group = group,
                                            .hosts = joined.hosts,
                                            .rank = info.rank,
                                            .leaders = std::min(kMaxLeaders, joined.hosts.least())};
  const int member = group->step_sync().rank();
  if (member < parts.leaders)
    parts.transport = inter_host_transport(member, joined, info.size(), group, store, options, verifies);
  auto collectives = std::make_unique<shm::HierarchicalCollectives>(std::move(parts));
  return std::make_unique<HierarchicalTransport>(
      layout_of(joined.hosts), group, std::move(collectives),
      std::make_unique<GlooTransport>(store.with_prefix("gloo"), info, options));
}

}  // namespace lockstep::comm
