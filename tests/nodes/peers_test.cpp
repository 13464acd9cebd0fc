// Jobs over two hosts with Python's ranks, with torchrun's agents, and with a whole training program of
// Lockstep.

#include <unistd.h>

#include <csignal>

#include "hosts_test.hpp"

namespace lockstep::launch {
namespace {

constexpr const char* kAllReduce = R"(import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(value)
dist.barrier()
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {value.item()}, restart {os.environ['TORCHELASTIC_RESTART_COUNT']}", flush=True)
dist.destroy_process_group()
)";

class Peers : public Hosts {
 protected:
  void SetUp() override {
    Hosts::SetUp();
    script_ = folder().write("all_reduce.py", kAllReduce);
    variables_ = {
        {"PYTHON_EXEC", LOCKSTEP_TEST_PYTHON}, {"GLOO_SOCKET_IFNAME", "eth0"}, {"OMP_NUM_THREADS", "1"}};
  }

  std::unique_ptr<LauncherProcess> lockstep(int host, Words words) {
    return start(host, std::move(words), variables_);
  }
  std::unique_ptr<LauncherProcess> torchrun(int host, const Words& words) {
    return std::make_unique<LauncherProcess>(Words{"-B", "-m", "torch.distributed.run"} + words, variables_,
                                             network().enter(host), LOCKSTEP_TEST_PYTHON);
  }

  /// Both nodes succeed, and their ranks have summed 1 + 2 + 3.
  static void expect_sum(LauncherProcess& first, LauncherProcess& second) {
    const Finished a = first.wait(kPythonLimit);
    const Finished b = second.wait(kPythonLimit);
    EXPECT_EQ(a.status, 0) << a.err;
    EXPECT_EQ(b.status, 0) << b.err;
    const std::string out = a.out + b.out;
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(has(out, "rank " + std::to_string(rank) + " of 3: 6.0, restart 0"));
  }

  std::string script_;
  Environment variables_;
};

TEST_F(Peers, PythonRanksOnTwoHosts) {
  make_hosts(2);
  auto first = lockstep(0, c10d("2", "2") + Words{script_});
  auto second = lockstep(1, c10d("2", "1") + Words{script_});
  expect_sum(*first, *second);
}

TEST_F(Peers, TorchrunFollows) {
  make_hosts(2);
  auto first = lockstep(0, static_job(0, "2", "2") + Words{script_});
  auto second = torchrun(1, static_job(1, "2", "1") + Words{script_});
  expect_sum(*first, *second);
}

TEST_F(Peers, TorchrunLeads) {
  make_hosts(2);
  auto first = torchrun(0, static_job(0, "2", "2") + Words{script_});
  auto second = lockstep(1, static_job(1, "2", "1") + Words{script_});
  expect_sum(*first, *second);
}

TEST_F(Peers, FollowingTorchrunEndsWithoutAStackTrace) {
  make_hosts(2);
  auto first = lockstep(0, static_job(0, "2", "1") + Words{"true"});
  auto second = torchrun(1, static_job(1, "2", "1") + Words{"--no-python", "true"});
  EXPECT_EQ(first->wait(kPythonLimit).status, 0);
  const Finished end = second->wait(kPythonLimit);
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.err.find("Traceback"), std::string::npos) << end.err;
}

TEST_F(Peers, TorchrunThatJoinsACoordinatorIsRefusedAtOnce) {
  make_hosts(1);
  auto first = lockstep(0, c10d("2") + Words{"true"});
  EXPECT_TRUE(eventually([&] { return access(folder().file(".config/lockstep/key").c_str(), F_OK) == 0; }));
  auto second = torchrun(0, c10d("2") + Words{"--no-python", "true"});
  const Finished refused = second->wait(kPythonLimit);
  EXPECT_NE(refused.status, 0);
  EXPECT_TRUE(has(refused.err, "RendezvousStateError"));
  EXPECT_TRUE(eventually([&] { return first->err().find("refused torchrun's agent") != std::string::npos; }));
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait(kPythonLimit).status, 128 + SIGTERM);
}

TEST_F(Peers, EndOfTorchrunsAgentIsDetected) {
  make_hosts(2);
  auto first = torchrun(0, static_job(0, "2", "1") + Words{"--no-python", "sleep", "100"});
  auto second = lockstep(1, static_job(1, "2", "1") + sleeper("100"));
  const pid_t rank = await_number(folder().file("pid"), kPythonLimit);
  first->signal(SIGTERM);
  EXPECT_NE(first->wait(kPythonLimit).status, 0);
  const Finished end = second->wait(kPythonLimit);
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(has(end.err, "the store of torchrun's agent"));
  EXPECT_TRUE(await_end(rank));
}

/// It says nothing of its end, but its connection to the store closes.
TEST_F(Peers, KilledTorchrunAgentIsNotAwaited) {
  make_hosts(2);
  auto first = lockstep(0, static_job(0, "2", "1") + Words{"true"});
  // In a file, as torchrun makes one '$' of the two.
  const std::string script = folder().write("sleeper.sh", sleeper("100").back());
  auto second = torchrun(1, static_job(1, "2", "1") + Words{"--no-python", "sh", script});
  const pid_t rank = await_number(folder().file("pid"), kPythonLimit);
  ASSERT_GT(rank, 1);
  second->signal(SIGKILL);
  const Finished end = first->wait();
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(has(end.err, "node 1 (torchrun's agent) left the job's store without having succeeded"));
  kill(rank, SIGKILL);
  EXPECT_TRUE(await_end(rank));
}

/// The ranks find each other over the network that the launchers have met on, with no interface named.
TEST_F(Peers, ModelTrainedOnTwoHostsEqualsThatOfOne) {
  make_hosts(2);
  variables_.erase("GLOO_SOCKET_IFNAME");
  const auto train = [](const ScratchFolder& into) {
    return Words{LOCKSTEP_IMAGE_CLASSIFICATION,
                 "--epochs",
                 "1",
                 "--device",
                 "cpu",
                 "--no-progress",
                 "--output-dir",
                 into.path()};
  };
  const ScratchFolder one, two;
  EXPECT_EQ(lockstep(0, Words{"--nproc-per-node", "2"} + train(one))->wait(kPythonLimit).status, 0);
  auto first = lockstep(0, c10d("2") + train(two));
  auto second = lockstep(1, c10d("2") + train(two));
  const Finished end = first->wait(kPythonLimit);
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(second->wait(kPythonLimit).status, 0);
  const std::string model = read_file(one.file("model.safetensors"));
  ASSERT_GT(model.size(), 100000U);
  EXPECT_TRUE(read_file(two.file("model.safetensors")) == model) << "the bytes of the two models differ";
}

}  // namespace
}  // namespace lockstep::launch
