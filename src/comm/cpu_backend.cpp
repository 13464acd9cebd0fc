#include "cpu_backend.hpp"

#include <algorithm>
#include <utility>

#include "c10d_handles.hpp"
#include "gloo_backend.hpp"
#include "lockstep/core/error.hpp"
#include "shm_backend.hpp"

namespace lockstep::comm {
namespace {

using BackendType = c10d::ProcessGroup::BackendType;

/// The board of ranks that share a store.
class StoreBoard final : public shm::Board {
 public:
  explicit StoreBoard(Store store) : store_(std::move(store)) {}
  void post(const std::string& key, const std::string& value) override { store_.set(key, value); }
  std::string read(const std::string& key, net::Deadline deadline) override {
    return store_.get(key, std::max(net::left_until(deadline), net::Milliseconds(1)));
  }

 private:
  Store store_;
};

c10::intrusive_ptr<c10d::Backend> make_gloo(const Membership& members, const Store& store,
                                            const ProcessGroupOptions& options) {
  return make_gloo_backend(to_intrusive(store.with_prefix("gloo").c10d_store()), members.rank, members.size(),
                           options, store.local_address());
}

shm::Group::Joined join_memory(const Membership& members, const Store& store,
                               const ProcessGroupOptions& options) {
  StoreBoard board(store.with_prefix("shm"));
  return shm::Group::join({.members = {members.rank, members.names, members.who},
                           .timeout = options.timeout,
                           .join_timeout = options.join_timeout},
                          board);
}

}  // namespace

CpuBackend make_cpu_backend(const Membership& members, const Store& store,
                            const ProcessGroupOptions& options) {
  if (options.backend == CommBackend::gloo) return {BackendType::GLOO, make_gloo(members, store, options)};
  auto joined = join_memory(members, store, options);
  if (joined.group) {
    auto fallback = [members, store, options] { return make_gloo(members, store, options); };
    return {BackendType::CUSTOM, make_shm_backend(std::move(joined.group), std::move(fallback))};
  }
  if (options.backend == CommBackend::automatic)
    return {BackendType::GLOO, make_gloo(members, store, options)};
  throw CommunicationError(members.who + ": the shm backend was asked for, but " + joined.obstacle +
                           ": use 'auto' or 'gloo'");
}

}  // namespace lockstep::comm
