#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "comm/process_group_impl.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

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

}  // namespace

GroupInfo ProcessGroup::Impl::subgroup_of(const GroupInfo& group, const std::vector<int>& ranks) {
  GroupInfo result = group.part(ranks);
  result.who = fmt::format("rank {} ({} of {} in the group [{}])", result.name(result.rank), result.rank,
                           result.size(), fmt::join(result.names, ","));
  return result;
}

std::string ProcessGroup::Impl::agree_on_subgroup(const Store& group_store, std::int64_t number,
                                                  const std::vector<int>& ranks) const {
  std::string name = fmt::format("sub/{}", number);
  const std::string agreed = group_store.set_if_absent(name + "/members", describe(ranks));
  if (agreed != describe(ranks)) refuse_part(*who, group_store.with_prefix(name), ranks, agreed);
  return name;
}

std::optional<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks) const {
  check_members(ranks, impl_->members.size());
  impl_->throw_if_aborted("new_group");
  const ProcessGroupOptions& options = impl_->options;
  const std::int64_t number = ++impl_->groups;
  const std::string name = impl_->agree_on_subgroup(impl_->connections->store, number, ranks);
  const bool is_member = std::find(ranks.begin(), ranks.end(), impl_->members.rank) != ranks.end();
  // A group of one rank needs no split.
  NcclParent parent{.communicators = impl_->connections->nccl};
  if (options.nccl_split && ranks.size() > 1) {
    parent.backend = impl_->nccl_backend();
    parent.color = static_cast<int>(number);
    parent.meet = [this] { barrier(impl_->options.join_timeout); };
  }
  std::shared_ptr<Impl> made;
  if (is_member) {
    made = std::make_shared<Impl>(Impl::subgroup_of(impl_->members, ranks), impl_->path + "/" + name, *impl_,
                                  impl_->connections->store.with_prefix(name), parent);
  } else if (parent.backend) {
    impl_->sit_out_split(parent);
  }
  {
    const std::lock_guard lock(impl_->family->mutex);
    impl_->family->subgroups.push_back({impl_, ranks, made});
  }
  if (!made) return std::nullopt;
  return ProcessGroup(std::move(made));
}

}  // namespace lockstep
