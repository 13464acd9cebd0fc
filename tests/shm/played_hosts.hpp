#pragma once

#include <string>

#include "shm/groups.hpp"
#include "shm/hierarchical_collectives.hpp"
#include "shm/transports.hpp"

namespace lockstep::shm::testing {

/// A transport whose hosts share memory after all.
class MemoryInterHostTransport final : public InterHostTransport {
 public:
  explicit MemoryInterHostTransport(std::unique_ptr<Group> group)
      : group_(std::move(group)), transport_(*group_) {}

  void announce(const Call& call) override { announced_ = call; }
  void agree() override {
    group_->step_sync().begin(announced_);
    group_->step_sync().step();
  }
  void run(const Collective& collective) override { transport_.run(collective); }
  void beside(const std::function<void()>& body) override { body(); }
  void abandon(const char* failure_text) noexcept override {
    group_->step_sync().give_up(std::make_exception_ptr(CommunicationError(failure_text)), failure_text);
  }
  void abort() noexcept override { group_->abort("aborted"); }

 private:
  std::unique_ptr<Group> group_;
  ShmTransport transport_;
  Call announced_;
};

/// One slot a rank, saying on which host it is: "aab" are two ranks of host a and one of host b.
struct Shape {
  std::string hosts;
  int leaders;

  int size() const { return static_cast<int>(hosts.size()); }
};

class Job {
 public:
  Job(Shape shape, std::size_t piece_bytes) : shape_(std::move(shape)), piece_bytes_(piece_bytes) {}

  void run(const std::function<void(HierarchicalCollectives&, Group& local, int rank)>& body) {
    run_threads(shape_.size(), [&](int rank) {
      auto options = options_for(rank, shape_.size());
      options.host = shape_.hosts[static_cast<std::size_t>(rank)];
      Group::Joined joined = Group::join(options, store_);
      const int member = joined.hosts.host_rank_of(rank).member;
      HierarchicalCollectives::Parts parts{.group = std::move(joined.group),
                                           .hosts = joined.hosts,
                                           .rank = rank,
                                           .leaders = shape_.leaders,
                                           .piece_bytes = piece_bytes_};
      if (member < shape_.leaders) parts.transport = between_hosts(joined.hosts, member);
      const auto local = parts.group;
      HierarchicalCollectives hierarchy(std::move(parts));
      body(hierarchy, *local, rank);
    });
  }

 private:
  std::unique_ptr<InterHostTransport> between_hosts(const HostTopology& hosts, int number) {
    auto joined = Group::join(options_for(hosts.own, hosts.count()), leader_stores_[number]);
    return std::make_unique<MemoryInterHostTransport>(std::move(joined.group));
  }

  Shape shape_;
  std::size_t piece_bytes_;
  MemoryBootstrapStore store_;
  MemoryBootstrapStore leader_stores_[8];
};

}  // namespace lockstep::shm::testing
