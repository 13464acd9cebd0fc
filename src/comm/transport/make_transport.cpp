#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "comm/transport/gloo_transport.hpp"
#include "comm/transport/hierarchical_transport.hpp"
#include "comm/transport/shm_transport.hpp"
#include "coordination/interruption.hpp"
#include "lockstep/core/error.hpp"
#include "shm/communication_cpu.hpp"

namespace lockstep::comm {
namespace {

/// Bootstrap notes in the group's store.
class GroupBootstrapStore final : public shm::BootstrapStore {
 public:
  explicit GroupBootstrapStore(Store store) : store_(std::move(store)) {}
  void post(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return store_.get(key, std::max(net::left_until(deadline), net::Milliseconds(1)));
  }
  void check_wait() override { coordination::throw_if_interrupted(); }

 private:
  Store store_;
};

shm::Group::Joined join_memory(const GroupInfo& info, const Store& store,
                               const ProcessGroupOptions& options) {
  GroupBootstrapStore bootstrap(store.with_prefix("shm"));
  return shm::Group::join({.members = info,
                           .timeout = options.timeout,
                           .join_timeout = options.join_timeout,
                           .threads = at::get_num_threads()},
                          bootstrap);
}

std::unique_ptr<Transport> gloo_transport(const GroupInfo& info, const Store& store,
                                          const ProcessGroupOptions& options, bool verifies) {
  const auto prefixed = store.with_prefix("gloo");
  auto gloo = std::make_unique<GlooTransport>(prefixed, info, options);
  if (verifies) gloo->verify_by(fingerprint_exchange(prefixed, info, options));
  return gloo;
}

}  // namespace

MadeTransport make_transport(const GroupInfo& info, const Store& store, const ProcessGroupOptions& options,
                             const TransportOptions& how) {
  if (options.backend == CommBackend::gloo) return {gloo_transport(info, store, options, how.verifies)};
  const auto affinity = how.binds ? shm::communication_affinity(process_environment())
                                  : std::optional<std::vector<int>>(std::in_place);
  auto joined = join_memory(info, store, options);
  if (!joined.obstacle.empty() && options.backend == CommBackend::shm) {
    throw CommunicationError(fmt::format("{}: the shm backend was requested, but {}: use 'auto' or 'gloo'",
                                         info.who, joined.obstacle));
  }
  if (!joined.group) return {gloo_transport(info, store, options, how.verifies)};
  const int cpu = shm::communication_cpu(affinity, joined.group->step_sync());
  if (joined.obstacle.empty()) return {shm_transport(std::move(joined.group)), cpu};
  return {hierarchical_transport(info, std::move(joined), store, options, how.verifies), cpu};
}

}  // namespace lockstep::comm
