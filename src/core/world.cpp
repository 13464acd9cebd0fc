#include "lockstep/core/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "core/cluster/scheduler_info.hpp"
#include "core/cluster/scheduler_variables.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using variables::kLargest;

/// Reads variables of one snapshot; every error names the variable and its value.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool has(std::string_view name) const { return environment_.contains(name); }

  std::string text(std::string_view name, std::string_view otherwise) const {
    return find_variable(environment_, name).value_or(std::string(otherwise));
  }

  int integer(std::string_view name, int lowest, int highest = kLargest) const {
    const auto value = find_variable(environment_, name);
    if (!value) missing(name);
    if (const auto number = parse_whole_number(*value, lowest, highest)) return *number;
    malformed(name, describe_whole_numbers(lowest, highest));
  }

  int integer_or(std::string_view name, int otherwise, int lowest = 0) const {
    return has(name) ? integer(name, lowest) : otherwise;
  }

  bool python_bool_or_false(std::string_view name) const {
    const std::string value = text(name, "False");
    if (value == "True") return true;
    if (value != "False") malformed(name, "True or False");
    return false;
  }

  /// Checks that the value of `name` is less than that of `other`.
  void demand_less(std::string_view name, int value, std::string_view other, int limit) const {
    if (value >= limit) malformed(name, fmt::format("less than {}={}", other, limit));
  }

  [[noreturn]] void malformed(std::string_view name, const std::string& expected) const {
    throw UsageError(fmt::format(
        "environment variable {}='{}': expected {}. The launcher sets it: start the program with 'lockstep "
        "run' or torchrun, or unset it.",
        name, text(name, ""), expected));
  }

  /// Names all that are missing, so that the user does not learn of one after the other.
  [[noreturn]] void missing(std::string_view name) const {
    std::vector<std::string> seen, absent;
    for (const auto* other :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
      if (has(other)) seen.push_back(fmt::format("{}={}", other, text(other, "")));
      if (!has(other) && name != other) absent.emplace_back(other);
    }
    throw UsageError(fmt::format(
        "environment variable {} is not set, but {} {}: a job of several processes needs it{}{}. Start the "
        "program with 'lockstep run' or torchrun, or unset them all to run one process alone.",
        name, fmt::join(seen, ", "), seen.size() > 1 ? "are" : "is", absent.empty() ? "" : ", as well as ",
        fmt::join(absent, ", ")));
  }

 private:
  const Environment& environment_;
};

void read_size_and_rank(const Reader& read, World& world) {
  world.world_size = read.integer("WORLD_SIZE", 1);
  world.rank = read.integer("RANK", 0);
  read.demand_less("RANK", world.rank, "WORLD_SIZE", world.world_size);
}

/// Whether all ranks are on this host, by the address at which they meet.
bool meets_on_loopback(const Reader& read) {
  const std::string host = read.text("MASTER_ADDR", "");
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == "[::1]";
}

/// As torch.distributed's env://, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are enough where they tell
/// that there is one host.
void read_local(const Reader& read, World& world) {
  const bool neither = !read.has("LOCAL_WORLD_SIZE") && !read.has("LOCAL_RANK");
  if (world.world_size == 1 || (neither && meets_on_loopback(read))) {
    world.local_world_size = read.integer_or("LOCAL_WORLD_SIZE", world.world_size, 1);
    world.local_rank = read.integer_or("LOCAL_RANK", world.rank);
  } else {
    world.local_world_size = read.integer("LOCAL_WORLD_SIZE", 1);
    world.local_rank = read.integer("LOCAL_RANK", 0);
  }
  if (world.local_world_size > world.world_size) {
    read.malformed("LOCAL_WORLD_SIZE", fmt::format("at most WORLD_SIZE={}", world.world_size));
  }
  read.demand_less("LOCAL_RANK", world.local_rank, "LOCAL_WORLD_SIZE", world.local_world_size);
  if (world.local_rank > world.rank) read.malformed("LOCAL_RANK", fmt::format("at most RANK={}", world.rank));
}

/// Without GROUP_RANK, the node is known only if all nodes have the same number of contiguous ranks.
void derive_group(const Reader& read, World& world) {
  const int first = world.rank - world.local_rank;
  if (first % world.local_world_size != 0 || world.world_size % world.local_world_size != 0)
    read.missing("GROUP_RANK");
  world.group_rank = first / world.local_world_size;
}

void read_group_and_role(const Reader& read, World& world) {
  const int nodes = (world.world_size + world.local_world_size - 1) / world.local_world_size;
  if (read.has("GROUP_RANK")) {
    world.group_rank = read.integer("GROUP_RANK", 0);
  } else {
    derive_group(read, world);
  }
  world.group_world_size = read.integer_or("GROUP_WORLD_SIZE", std::max(nodes, world.group_rank + 1), 1);
  read.demand_less("GROUP_RANK", world.group_rank, "GROUP_WORLD_SIZE", world.group_world_size);
  world.role_name = read.text("ROLE_NAME", "default");
  world.role_rank = read.integer_or("ROLE_RANK", world.rank);
  world.role_world_size = read.integer_or("ROLE_WORLD_SIZE", world.world_size, 1);
  read.demand_less("ROLE_RANK", world.role_rank, "ROLE_WORLD_SIZE", world.role_world_size);
}

void read_master(const Reader& read, World& world) {
  if (world.world_size == 1 && !read.has("MASTER_ADDR") && !read.has("MASTER_PORT")) return;
  if (!read.has("MASTER_ADDR")) read.missing("MASTER_ADDR");
  world.master_addr = read.text("MASTER_ADDR", "");
  if (world.master_addr.empty()) read.malformed("MASTER_ADDR", "the name or address of rank 0's host");
  world.master_port = static_cast<std::uint16_t>(read.integer("MASTER_PORT", 1, 65535));
}

void read_elastic(const Reader& read, World& world) {
  world.restart_count = read.integer_or("TORCHELASTIC_RESTART_COUNT", 0);
  world.max_restarts = read.integer_or("TORCHELASTIC_MAX_RESTARTS", 0);
  world.run_id = read.text("TORCHELASTIC_RUN_ID", "");
  world.use_agent_store = read.python_bool_or_false("TORCHELASTIC_USE_AGENT_STORE");
  world.error_file = read.text("TORCHELASTIC_ERROR_FILE", "");
  world.job_token = read.text("LOCKSTEP_JOB_TOKEN", "");
}

constexpr const char* kFour[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

/// A variable that was set by hand and contradicts the scheduler is an error: `export RANK=0` in a batch
/// script, or a WORLD_SIZE that counts other tasks.
[[noreturn]] void contradicts_cluster(const Reader& read, const SchedulerInfo& facts, const char* name) {
  throw UsageError(fmt::format(
      "environment variable {}='{}', but {} says that it is {}. Unset it, and the scheduler's value is "
      "taken; "
      "or set all of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE on each rank, and none of the "
      "scheduler's are; or start one 'lockstep run' on each node.",
      name, read.text(name, ""), facts.source, find_variable(facts.contract, name).value_or("?")));
}

/// The environment, completed with the scheduler's values for variables that are not set.
Environment completed(const Environment& environment, const SchedulerInfo& facts) {
  const Reader read(environment);
  for (const auto* name : kFour) {
    const auto said = find_variable(facts.contract, name);
    if (said && read.has(name) && read.text(name, "") != *said) contradicts_cluster(read, facts, name);
  }
  Environment result = environment;
  result.insert(facts.contract.begin(), facts.contract.end());
  return result;
}

World read_world(const Environment& environment) {
  const Reader read(environment);
  World world;
  if (std::ranges::none_of(kFour, [&](const char* name) { return read.has(name); })) return world;
  read_size_and_rank(read, world);
  read_local(read, world);
  read_group_and_role(read, world);
  read_master(read, world);
  read_elastic(read, world);
  return world;
}

}  // namespace

World World::from_environment() { return from_environment(process_environment()); }

World World::from_environment(const Environment& environment) {
  // A launcher has set them all; within a step they number its own ranks, not Slurm's tasks.
  if (std::ranges::all_of(kFour, [&](const char* name) { return environment.contains(name); }))
    return read_world(environment);
  const auto facts = scheduler_info(environment);
  if (!facts) return read_world(environment);
  World world = read_world(completed(environment, *facts));
  world.local_ranks = facts->local_ranks;
  world.own_devices = facts->own_devices;
  return world;
}

}  // namespace lockstep
