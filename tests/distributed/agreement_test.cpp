#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace lockstep::testing {
namespace {

struct Oddity {
  const char* name;
  const char* text;
};

class AModelThatDiffers : public ::testing::TestWithParam<Oddity> {};
INSTANTIATE_TEST_SUITE_P(
    By, AModelThatDiffers,
    ::testing::Values(
        Oddity{"shape",
               "'second' is parameter Float [3] with gradient on ranks 0, 1; parameter Float [5] with "
               "gradient on rank 2"},
        Oddity{"dtype",
               "'second' is parameter Float [3] with gradient on ranks 0, 1; parameter Double [3] with "
               "gradient on rank 2"},
        Oddity{"missing",
               "'third' is parameter Float [2] with gradient on ranks 0, 1; nothing of that name on rank 2"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(AModelThatDiffers, IsNamedByEveryRank) {
  const Finished job = run_probe(3, {"mismatch", GetParam().name});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(is_readable(job));
  for (const int rank : {0, 1, 2}) {
    EXPECT_TRUE(contains_all(
        error_of_rank(job, rank),
        {"rank " + std::to_string(rank) + ": the ranks hold different models", GetParam().text}));
  }
}

TEST(Worlds, OfDifferentSizesAreRefused) {
  const int port = free_port();
  const auto first = start_probe({"join_within", "300000"}, by_hand(0, 2, port));
  const auto second = start_probe({"join_within", "300000"}, by_hand(1, 3, port));
  const Finished ends[] = {first->wait(), second->wait()};
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ends[rank].status, 1);
    EXPECT_TRUE(is_readable(ends[rank]));
    EXPECT_TRUE(contains_all(error_of_rank(ends[rank], rank),
                             {"a world of 2", "a world of 3", "start all of them with the same WORLD_SIZE"}));
  }
}

TEST(Worlds, WithTwoProcessesOfOneRankAreRefused) {
  const int port = free_port();
  const auto main = start_probe({"join_within", "300000"}, by_hand(0, 3, port));
  const auto first = start_probe({"join_within", "300000"}, by_hand(1, 3, port));
  const auto second = start_probe({"join_within", "300000"}, by_hand(1, 3, port));
  const std::string one = "pid " + std::to_string(first->pid()), two = "pid " + std::to_string(second->pid());
  for (const auto* rank : {&main, &first, &second}) {
    const Finished end = (*rank)->wait();
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(is_readable(end));
    EXPECT_TRUE(
        contains_all(end.err, {"two processes claim rank 1 of 3: ", one, two, "Give each its own RANK"}));
  }
}

TEST(Worlds, WithTwoProcessesOfRankZeroAreRefused) {
  const int port = free_port();
  const auto first = start_probe({"join_within", "3000"}, by_hand(0, 2, port));
  const auto second = start_probe({"join_within", "3000"}, by_hand(0, 2, port));
  const std::string all = first->wait().err + second->wait().err;
  EXPECT_EQ(count_lines_with(all, "rank 0 cannot listen on port " + std::to_string(port)), 1) << all;
  EXPECT_EQ(count_lines_with(all, "rank 1 did not arrive"), 1) << all;
}

TEST(Worlds, WithoutRankZeroGiveUpAndSayWhoIsMissing) {
  const Finished alone = start_probe({"join_within", "1000"}, by_hand(1, 2, free_port()))->wait();
  EXPECT_EQ(alone.status, kTimeoutExitCode);
  EXPECT_TRUE(is_readable(alone));
  EXPECT_TRUE(
      contains_all(error_of_rank(alone, 1), {"rank 1 cannot reach the job's store at 127.0.0.1:",
                                             "nothing listened there within 1000 ms", "Rank 0 is missing"}));
}

TEST(Worlds, WithoutTheOthersGiveUpAndSayWhoIsMissing) {
  const Finished alone = start_probe({"join_within", "1000"}, by_hand(0, 3, free_port()))->wait();
  EXPECT_EQ(alone.status, kTimeoutExitCode);
  EXPECT_TRUE(is_readable(alone));
  EXPECT_TRUE(contains_all(error_of_rank(alone, 0), {"timed out after 1000 ms: ranks 1, 2 did not arrive"}));
}

/// An unrelated program that listens on a port of the loopback interface.
class Stranger {
 public:
  Stranger() : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(descriptor_, generic, length), 0);
    EXPECT_EQ(listen(descriptor_, 16), 0);
    EXPECT_EQ(getsockname(descriptor_, generic, &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Stranger() { close(descriptor_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  std::string port() const { return std::to_string(port_); }

 private:
  int descriptor_;
  int port_ = 0;
};

TEST(APortInUse, IsNamedByTheLauncher) {
  const Stranger stranger;
  const Finished job =
      run_probe(2, {"hello"}, {"--master-addr", "127.0.0.1", "--master-port", stranger.port()});
  EXPECT_EQ(job.status, 1);
  EXPECT_TRUE(
      contains_all(job.err, {"cannot listen at 127.0.0.1:" + stranger.port(), "Address already in use",
                             "held by process " + std::to_string(getpid())}));
}

TEST(APortInUse, IsNamedByARankThatHostsTheStore) {
  const Stranger stranger;
  const Finished rank =
      start_probe({"join_within", "3000"}, by_hand(0, 2, std::stoi(stranger.port())))->wait();
  EXPECT_EQ(rank.status, 1);
  EXPECT_TRUE(contains_all(error_of_rank(rank, 0), {"rank 0 cannot listen on port " + stranger.port(),
                                                    "Address already in use", "Choose another port"}));
}

}  // namespace
}  // namespace lockstep::testing
