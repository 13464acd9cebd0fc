// The real torchrun and `lockstep run` start the same probe; what the ranks find must be the same.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "net/socket.hpp"
#include "unit/launch/launcher_process.hpp"

namespace lockstep::launch {
namespace {

using Words = std::vector<std::string>;

/// Writes its environment and its arguments, each ended by a zero byte, into the folder that it is given.
constexpr const char* kProbe =
    "#!/bin/sh\n"
    "env -0 > \"$1/$RANK.env\"\n"
    "printf '%s\\0' \"$@\" > \"$1/$RANK.arguments\"\n";

Words split(const std::string& text) {
  Words parts;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = text.find('\0', at);
    parts.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return parts;
}

/// What one rank found.
struct Found {
  Environment environment;
  Words arguments;
};

Found read_found(const ScratchFolder& folder, int rank) {
  Found found;
  for (const auto& entry : split(read_file(folder.file(std::to_string(rank) + ".env")))) {
    const auto equals = entry.find('=');
    found.environment[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  found.arguments = split(read_file(folder.file(std::to_string(rank) + ".arguments")));
  // The first is the folder, which differs between the two launchers.
  if (!found.arguments.empty()) found.arguments.erase(found.arguments.begin());
  return found;
}

/// Starts two ranks of the probe. `launcher` is a program and its first words.
std::vector<Found> probe(const Words& launcher, const Words& flags, const Environment& variables) {
  const ScratchFolder folder;
  Words words(launcher.begin() + 1, launcher.end());
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(),
               {folder.write("probe", kProbe, true), folder.path(), "--nproc-per-node=9", "${local_rank}",
                "r$local_rank.txt", "$local_ranks", "$other", "${open", "--", "a b"});
  Environment with_folder = variables;
  // Whatever a launcher leaves in its temporary folder goes with the test.
  with_folder["TMPDIR"] = folder.path();
  const Finished result = LauncherProcess(words, with_folder, {}, launcher.front()).wait();
  EXPECT_EQ(result.status, 0) << launcher.front() << "\n" << result.err;
  std::vector<Found> ranks{read_found(folder, 0), read_found(folder, 1)};
  for (auto& rank : ranks) rank.environment.erase("TMPDIR");
  return ranks;
}

/// The names of the variables that differ between the two, or that only one has.
std::set<std::string> differences(const Environment& ours, const Environment& theirs) {
  std::set<std::string> names;
  for (const auto& [name, value] : ours) {
    if (find_variable(theirs, name) != value) names.insert(name);
  }
  for (const auto& [name, value] : theirs) {
    if (ours.find(name) == ours.end()) names.insert(name);
  }
  return names;
}

void compare(const Words& flags, const Environment& variables, std::set<std::string> allowed) {
  const auto theirs =
      probe({LOCKSTEP_TEST_PYTHON, "-B", "-m", "torch.distributed.run", "--no-python"}, flags, variables);
  const auto ours = probe({LOCKSTEP_LAUNCHER, "run"}, flags, variables);
  // In every case, and why:
  allowed.insert({
      "TORCHELASTIC_ERROR_FILE",  // each launcher has a temporary folder of its own
      "LOCKSTEP_HEARTBEAT_FILE",  // where programs of the library show that they move
      "LOCKSTEP_JOB_TOKEN",       // what they prove to the store
      "_",                        // the shell's note of how the probe was called
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const auto& name : differences(ours[rank].environment, theirs[rank].environment)) {
      EXPECT_TRUE(allowed.count(name) == 1)
          << "rank " << rank << ": " << name << "='"
          << find_variable(ours[rank].environment, name).value_or("<unset>") << "', under torchrun '"
          << find_variable(theirs[rank].environment, name).value_or("<unset>") << "'";
    }
    EXPECT_EQ(ours[rank].arguments, theirs[rank].arguments);
    EXPECT_EQ(theirs[rank].environment.at("RANK"), std::to_string(rank)) << "the probe ran";
    EXPECT_FALSE(ours[rank].environment.at("TORCHELASTIC_ERROR_FILE").empty());
  }
}

TEST(LauncherInterop, AStaticAddressGivesTheSameEnvironment) {
  compare({"--nproc-per-node=2", "--master_addr", "127.0.0.1", "--master-port",
           std::to_string(net::free_port()), "--role=trainer", "--rdzv-id=job", "--max-restarts=2",
           "--monitor-interval=0.5", "--start-method", "fork"},
          {}, {});
}

TEST(LauncherInterop, VariablesAndSetThreadsGiveTheSameEnvironment) {
  compare({"--nproc-per=2"},  // a unique prefix
          {{"PET_MASTER_PORT", std::to_string(net::free_port())},
           {"PET_ROLE", "w"},
           {"OMP_NUM_THREADS", "3"},
           {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
           {"CUDA_VISIBLE_DEVICES", ""}},
          {});
}

TEST(LauncherInterop, StandaloneDiffersInAddressAndRunIdOnly) {
  compare({"--standalone", "--nproc_per_node", "2"}, {},
          {
              "MASTER_ADDR",          // torchrun: the host's full name, which must resolve; here loopback
              "MASTER_PORT",          // both: a free port
              "TORCHELASTIC_RUN_ID",  // both: random
          });
}

}  // namespace
}  // namespace lockstep::launch
