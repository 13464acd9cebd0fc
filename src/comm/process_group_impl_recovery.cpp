#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/process_group_impl.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

// A group is formed again in three steps, so that a failure in any of them leaves it as it was, aborted:
//
//   release    the observers let go of operations: of the reducer, and of what is exchanged beside the steps
//   rebuild    new connections for the group and its subgroups, parents first, in the order of their creation
//   replace    all groups get their new connections at once; then the observers take them
//
// All keys of generation g > 1 are below "generation/<g>/", so that a rank that left an earlier attempt, or a
// process that was replaced, finds nobody there and disturbs nobody. The old connections exist until the new
// ones do: any thread may still call abort(), or run into the error of an old operation.
//
// A rank knows the next number by counting its own attempts. Ranks that fail in an attempt and ranks that
// succeed in it and notice the failure of the others later have tried equally often. Where this does not hold
// (a new process has tried nothing), who orders the recovery gives the number.

/// A group and what it gets.
struct ProcessGroup::Impl::Rebuilt {
  std::shared_ptr<Impl> group;  // Null: a subgroup that nobody holds any more.
  Impl* identity;
  std::unique_ptr<Connections> connections;
  std::int64_t subgroups = 0;
};

Store ProcessGroup::Impl::store_of(std::uint64_t number) const {
  return number == 1 ? root : root.with_prefix(fmt::format("generation/{}", number));
}

bool ProcessGroup::Impl::is_aborted() const {
  const std::lock_guard lock(abort_mutex);
  return !abort_reason.empty();
}

void ProcessGroup::Impl::throw_if_aborted(const char* what) const {
  const std::lock_guard lock(abort_mutex);
  if (abort_reason.empty()) return;
  throw CommunicationError(
      fmt::format("{}: {} was aborted: {}. Form the group again on every rank (reform), or "
                  "make a new one",
                  *who, what, abort_reason));
}

void ProcessGroup::Impl::abort(const std::string& given) {
  const std::string reason = given.empty() ? "no reason was given" : given;
  if (is_outermost) {
    const std::lock_guard lock(family->mutex);
    if (family->is_reforming && family->reform_abort.empty()) family->reform_abort = reason;
  }
  {
    const std::lock_guard lock(abort_mutex);
    if (abort_reason.empty()) {
      abort_reason = reason;
      if (connections->cpu != nullptr) connections->cpu->abort(reason);
      if (const auto backend = nccl_backend()) connections->nccl->abort(backend);
    }
  }
  if (!is_outermost) return;
  std::vector<std::shared_ptr<Impl>> subgroups;
  {
    const std::lock_guard lock(family->mutex);
    for (const auto& one : family->subgroups) {
      if (auto group = one.group.lock()) subgroups.push_back(std::move(group));
    }
  }
  for (const auto& group : subgroups) group->abort(reason);
}

void ProcessGroup::Impl::check_can_reform(std::uint64_t wanted) const {
  if (!is_outermost)
    throw UsageError(*who + ": reform() is for the outermost group, which forms its subgroups again");
  if (options.device.is_cuda() && options.backend != CommBackend::gloo)
    throw UsageError(*who + ": a group with NCCL cannot be formed again: start its processes again");
  if (wanted <= attempted)
    throw UsageError(fmt::format("{}: reform({}): generation {} was tried before", *who, wanted, attempted));
}

/// The ranks would go on with sums in another order, and other bits.
void ProcessGroup::Impl::check_layout(const Connections& made) const {
  if (connections->cpu == nullptr || made.cpu == nullptr || family->set_up) return;
  const std::string before = connections->cpu->transport().layout(), now = made.cpu->transport().layout();
  if (before == now) return;
  throw CommunicationError(
      fmt::format("{}: the group was connected by {}, and is now by {}: sums would be taken in another order",
                  *who, before, now));
}

std::vector<ProcessGroup::Impl::Rebuilt> ProcessGroup::Impl::rebuild(std::uint64_t wanted) {
  std::vector<Rebuilt> rebuilt;
  rebuilt.push_back({nullptr, this, connect(connections->origin, store_of(wanted), nullptr, {})});
  check_layout(*rebuilt.back().connections);
  std::vector<Family::Subgroup> subgroups;
  {
    const std::lock_guard lock(family->mutex);
    subgroups = family->subgroups;
  }
  for (const auto& one : subgroups) {
    const auto parent = one.parent.lock();
    const auto found = std::ranges::find_if(
        rebuilt, [&](const Rebuilt& done) { return parent != nullptr && done.identity == parent.get(); });
    if (found == rebuilt.end()) {
      throw UsageError(
          fmt::format("{}: the group [{}] cannot be formed again, because the group from which it was "
                      "made is gone: keep that as long as groups are made again",
                      *who, fmt::join(one.ranks, ",")));
    }
    const Store& store = found->connections->store;
    const std::string name = parent->agree_on_subgroup(store, ++found->subgroups, one.ranks);
    if (std::ranges::find(one.ranks, parent->members.rank) == one.ranks.end()) continue;
    const auto group = one.group.lock();
    // The others may still hold it, so this rank takes part also if it does not.
    const auto diagnostics = rebuilt.front().connections->diagnostics;
    const Store own = store.with_prefix(name);
    if (group) {
      rebuilt.push_back({group, group.get(), group->connect(connections->origin, own, diagnostics, {})});
      group->check_layout(*rebuilt.back().connections);
    } else {
      Impl(subgroup_of(parent->members, one.ranks), parent->path + "/" + name, *parent, own, {});
    }
  }
  return rebuilt;
}

void ProcessGroup::Impl::replace_connections(std::vector<Rebuilt>& rebuilt, std::uint64_t wanted) {
  for (auto& one : rebuilt) {
    Impl& group = *one.identity;
    const std::lock_guard lock(group.abort_mutex);
    std::swap(group.connections, one.connections);
    group.groups = one.subgroups;
    group.namespaces = 0;
    group.generation = wanted;
    group.abort_reason.clear();
  }
}

void ProcessGroup::Impl::reform(std::uint64_t wanted) {
  check_can_reform(wanted);
  const Heartbeat::Waiting beat(process_heartbeat(), "forming the group again", wanted);
  attempted = wanted;
  abort(fmt::format("the group is formed again, as generation {}", wanted));
  std::vector<std::shared_ptr<comm::GroupObserver>> observers;
  {
    const std::lock_guard lock(family->mutex);
    for (const auto& one : family->observers) {
      if (auto observer = one.lock()) observers.push_back(std::move(observer));
    }
  }
  for (const auto& observer : observers) observer->release();
  const auto set_reforming = [this](bool is) {
    const std::lock_guard lock(family->mutex);
    family->is_reforming = is;
    return std::exchange(family->reform_abort, "");
  };
  set_reforming(true);
  std::vector<Rebuilt> rebuilt;
  try {
    rebuilt = rebuild(wanted);
  } catch (...) {
    set_reforming(false);
    throw;
  }
  replace_connections(rebuilt, wanted);
  family->set_up.reset();
  const std::string aborted = set_reforming(false);
  rebuilt.clear();  // Ends the threads and connections of the last generation.
  if (!aborted.empty()) abort(aborted);
  throw_if_aborted("reform");
  try {
    for (const auto& observer : observers) observer->reseat();
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
}

void ProcessGroup::abort(const std::string& reason) const { impl_->abort(reason); }

void ProcessGroup::reform(std::uint64_t generation) const {
  impl_->reform(generation == 0 ? impl_->attempted + 1 : generation);
}

std::uint64_t ProcessGroup::generation() const noexcept { return impl_->generation; }

}  // namespace lockstep
