// A group is aborted, and formed again in the same processes.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/group_observer.hpp"
#include "comm/revocation_watch.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "support/every_collective.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;
using testing::run_ranks;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// Far less than the timeout of the groups, and far more than an abort takes on a busy machine.
constexpr std::chrono::seconds kBound{10};

ProcessGroupOptions with(CommBackend backend) {
  return {.backend = backend, .timeout = std::chrono::seconds(60), .join_timeout = std::chrono::seconds(60)};
}

/// Ranks that are threads, each with its group over one store.
void run_groups(int size, CommBackend backend, const std::function<void(ProcessGroup& group)>& body) {
  const Store store = Store::in_memory();
  run_ranks(size, [&](int rank) {
    ProcessGroup group(rank, size, store, with(backend));
    body(group);
  });
}

float sum_of_ranks(const ProcessGroup& group) {
  at::Tensor value = at::full({5}, group.rank() + 1.0);
  group.all_reduce(value);
  return value[4].item<float>();
}

class EveryTransport : public ::testing::TestWithParam<CommBackend> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryTransport, ::testing::Values(CommBackend::shm, CommBackend::gloo),
                         [](const auto& test) { return test.param == CommBackend::shm ? "shm" : "gloo"; });

/// Rank 0 waits for the others in each kind of operation, and is aborted by another thread.
TEST_P(EveryTransport, AbortEndsEachOperationAtOnceWithTheReason) {
  for (const auto& [name, collective] : testing::every_collective()) {
    std::barrier<> everybody(2);
    Milliseconds took{0};
    run_groups(2, GetParam(), [&, &body = collective](ProcessGroup& group) {
      if (group.rank() == 1) {
        everybody.arrive_and_wait();  // Never calls the operation.
        return;
      }
      Clock::time_point aborted;
      std::thread other([&] {
        std::this_thread::sleep_for(Milliseconds(30));
        aborted = Clock::now();
        group.abort("rank 1 is lost");
        group.abort("a later reason");
      });
      const std::string text = message_of<CommunicationError>([&] {
        for (;;) body(group);  // What only sends may succeed a few times.
      });
      const auto ended = Clock::now();
      other.join();
      took = std::chrono::duration_cast<Milliseconds>(ended - aborted);
      EXPECT_TRUE(contains_all(text, {"rank 0 of 2", "was aborted: rank 1 is lost", "reform"})) << name;
      EXPECT_TRUE(
          contains_all(message_of<CommunicationError>([&] { body(group); }), {"was aborted: rank 1 is lost"}))
          << name;
      everybody.arrive_and_wait();
    });
    EXPECT_LT(took, kBound) << name;
    RecordProperty(name, std::to_string(took.count()));
    // A barrier is a wait on the store, which looks once a second.
    if (name != "barrier") {
      EXPECT_LT(took, Milliseconds(1000)) << name;
    }
  }
}

TEST_P(EveryTransport, AbortEndsTheWaitForAWorkAndItsFuture) {
  std::barrier<> everybody(2);
  run_groups(2, GetParam(), [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      const at::Tensor small = at::ones({3}), large = at::ones({1 << 20});
      Work first = group.all_reduce_async(small), second = group.all_reduce_async(large);
      group.abort("enough");
      EXPECT_THROWS(second.wait(), CommunicationError, "was aborted: enough");
      EXPECT_THROWS(first.wait(), CommunicationError, "was aborted: enough");
      EXPECT_THROWS(group.new_group({0, 1}), CommunicationError, "new_group was aborted: enough");
      EXPECT_THROWS(group.barrier(), CommunicationError, "barrier was aborted: enough");
    }
    everybody.arrive_and_wait();
  });
}

TEST_P(EveryTransport, GroupsWorkAgainAfterAFaultThatKilledNobody) {
  run_groups(3, GetParam(), [&](ProcessGroup& group) {
    const ProcessGroup copy = group;
    const auto pair = group.new_group({2, 0});
    const auto of_pair = pair ? pair->new_group({1}) : std::nullopt;
    const auto other = group.new_group({1});
    EXPECT_EQ(group.generation(), 1U);
    for (std::uint64_t generation = 2; generation < 5; ++generation) {
      if (group.rank() == 1) group.abort("a link was down");
      EXPECT_THROW(sum_of_ranks(group), CommunicationError);
      group.reform();
      EXPECT_EQ(copy.generation(), generation);
      EXPECT_EQ(sum_of_ranks(copy), 6.0F);
      if (pair) {
        EXPECT_EQ(sum_of_ranks(*pair), 3.0F);
        EXPECT_EQ(pair->generation(), generation);
        EXPECT_EQ(pair->rank(), group.rank() == 2 ? 0 : 1);
      }
      group.barrier();
      const auto later = group.new_group({0, 1, 2});
      EXPECT_EQ(sum_of_ranks(*later), 6.0F);
    }
  });
}

/// In the set-up of a new process nobody answers.
void expect_refusals(const ProcessGroup& group) {
  const auto expect_refusal = [](const char* name, const auto& call) {
    try {
      call();
      ADD_FAILURE() << name << " was not refused";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("replaces a lost process"), std::string::npos) << error.what();
    }
  };
  expect_refusal("all_reduce", [&] { group.all_reduce(at::ones({1})); });
  expect_refusal("broadcast", [&] { group.broadcast_object(std::string("x")); });
  expect_refusal("all_gather", [&] { group.all_gather(at::ones({1})); });
  expect_refusal("send", [&] { group.send(at::ones({1}), group.rank() == 0 ? 1 : 0); });
  expect_refusal("barrier", [&] { group.barrier(); });
}

/// The rank's thread ends, and another one takes its place. It makes the subgroup as the first did.
TEST_P(EveryTransport, AnotherProcessTakesThePlaceOfALostOne) {
  const Store store = Store::in_memory();
  run_ranks(4, [&](int thread) {
    const int rank = thread == 3 ? 1 : thread;
    const auto work = [&](const ProcessGroup& group, const std::optional<ProcessGroup>& pair) {
      EXPECT_EQ(sum_of_ranks(group), 6.0F);
      EXPECT_EQ(group.generation(), 2U);
      if (pair) {
        EXPECT_EQ(sum_of_ranks(*pair), 3.0F);
      }
      EXPECT_EQ(group.broadcast_object(std::string("from ") + std::to_string(group.rank()), 1), "from 1");
    };
    if (thread == 3) {
      const ProcessGroup group = comm::join_generation(rank, 3, store, 2, with(GetParam()));
      EXPECT_TRUE(comm::is_newcomer(group));
      const auto pair = group.new_group({0, 1});
      expect_refusals(group);
      expect_refusals(*pair);
      group.reform(2);
      return work(group, pair);
    }
    ProcessGroup group(rank, 3, store, with(GetParam()));
    const auto pair = group.new_group({0, 1});
    EXPECT_EQ(sum_of_ranks(group), 6.0F);
    if (rank == 1) return;
    EXPECT_THROW(sum_of_ranks(group), CommunicationError);
    group.reform(2);
    work(group, pair);
  });
}

TEST_P(EveryTransport, TwoHundredRoundsLeaveNothingBehind) {
  const auto entries = [](const char* folder) {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  const auto resources = [&] {
    std::ifstream maps("/proc/self/maps");
    std::ptrdiff_t shared = 0;
    for (std::string line; std::getline(maps, line);)
      shared += line.find("memfd:lockstep") != std::string::npos ? 1 : 0;
    return std::array{entries("/proc/self/fd"), entries("/proc/self/task"), shared};
  };
  std::barrier<> everybody(2);
  run_groups(2, GetParam(), [&](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    const auto round = [&] {
      Work left = group.all_reduce_async(at::ones({100}));
      group.abort("again");
      try {
        sum_of_ranks(*pair);
      } catch (const CommunicationError&) {
      }
      group.reform();
      EXPECT_EQ(sum_of_ranks(*pair), 3.0F);
    };
    for (int i = 0; i < 5; ++i) round();
    everybody.arrive_and_wait();
    const auto before = resources();
    everybody.arrive_and_wait();
    for (int i = 0; i < 200; ++i) round();
    everybody.arrive_and_wait();
    // Connections of the last round may still be closing, and the other rank's thread reads the same folders.
    // One that stays behind in each round would be 200.
    const auto after = resources();
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_LT(after[i] - before[i], 20) << i;
    everybody.arrive_and_wait();
  });
}

TEST(Reform, RefusesWhatItCannotDo) {
  run_groups(2, CommBackend::shm, [](ProcessGroup& group) {
    const auto pair = group.new_group({0, 1});
    EXPECT_THROWS(pair->reform(), UsageError, "outermost group");
    EXPECT_THROWS(group.reform(1), UsageError, "generation 1 was tried before");
    group.reform(7);
    EXPECT_EQ(group.generation(), 7U);
    EXPECT_THROWS(group.reform(6), UsageError, "generation 7 was tried before");
  });
}

/// A rank that never comes: the others' attempt ends when they are told, and the next one succeeds.
TEST(Reform, AnAttemptThatIsAbortedCanBeRepeated) {
  std::barrier<> everybody(2);
  run_groups(2, CommBackend::shm, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      std::thread other([&] {
        std::this_thread::sleep_for(Milliseconds(100));
        group.abort("a further rank is lost");
      });
      const auto begun = Clock::now();
      EXPECT_THROWS(group.reform(2), CommunicationError, "a further rank is lost");
      EXPECT_LT(Clock::now() - begun, kBound);
      other.join();
      EXPECT_THROWS(sum_of_ranks(group), CommunicationError, "was aborted");
      EXPECT_EQ(group.generation(), 1U);
    }
    everybody.arrive_and_wait();
    group.reform(3);
    EXPECT_EQ(sum_of_ranks(group), 3.0F);
  });
}

TEST(RevocationWatch, EndsTheOperationsOfAllRanks) {
  const Store store = Store::in_memory();
  run_ranks(3, [&](int rank) {
    ProcessGroup group(rank, 3, store, with(CommBackend::automatic));
    for (int generation = 1; generation < 4; ++generation) {
      {
        comm::RevocationWatch watch(store.with_prefix("elastic"), group);
        const auto begun = Clock::now();
        if (rank == 2) {
          std::this_thread::sleep_for(Milliseconds(20));
          watch.revoke("rank 9 ended");
          watch.revoke("a later reason");
        } else {
          EXPECT_THROWS(sum_of_ranks(group), CommunicationError, "was aborted: rank 9 ended");
          EXPECT_LT(Clock::now() - begun, kBound);
        }
      }
      group.reform();
      EXPECT_EQ(sum_of_ranks(group), 6.0F);
    }
  });
}

}  // namespace
}  // namespace lockstep
