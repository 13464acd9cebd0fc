#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/p2p_batch.hpp"
#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"

namespace lockstep {
namespace {

using Op = P2POp::Op;
using Events = std::vector<std::string>;

class DoneWork final : public c10d::Work {
 public:
  bool isCompleted() override { return true; }
};

/// As NCCL's: an operation inside of a batch gives no Work.
class CoalescingBackend final : public c10d::Backend {
 public:
  explicit CoalescingBackend(int calls_that_succeed = 100) : Backend(0, 2), left_(calls_that_succeed) {}

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override { events.emplace_back("start"); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    events.emplace_back("end");
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>&, int destination, int) override {
    return enter("send to " + std::to_string(destination));
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int source, int) override {
    return enter("recv from " + std::to_string(source));
  }

  Events events;

 private:
  c10::intrusive_ptr<c10d::Work> enter(const std::string& event) {
    if (--left_ < 0) throw CommunicationError("broken");
    events.push_back(event);
    return {};
  }

  int left_;
};

std::vector<P2POp> there_and_back(int peer) {
  return {{Op::isend, at::ones({2}), peer}, {Op::irecv, at::zeros({2}), peer}};
}

TEST(P2PBatch, IsOneOperationOfABackendThatCoalesces) {
  CoalescingBackend backend;
  const auto works = comm::start_batch(backend, there_and_back(1));
  EXPECT_EQ(backend.events, (Events{"start", "send to 1", "recv from 1", "end"}));
  ASSERT_EQ(works.size(), 1U);
  EXPECT_TRUE(works.front());
}

TEST(P2PBatch, IsClosedWhereAnOperationFails) {
  CoalescingBackend backend(1);
  EXPECT_THROW(comm::start_batch(backend, there_and_back(1)), CommunicationError);
  EXPECT_EQ(backend.events, (Events{"start", "send to 1", "end"}));
}

void wait_for(std::vector<Work> works) {
  for (auto& work : works) work.wait();
}

/// Every rank sends to the next one and receives from the one before, sends first.
void go_round(const ProcessGroup& group, std::int64_t elements, int messages) {
  const int size = group.size(), next = (group.rank() + 1) % size, before = (group.rank() + size - 1) % size;
  std::vector<P2POp> batch;
  for (int i = 0; i < messages; ++i)
    batch.push_back({Op::isend, at::full({elements}, group.rank() * messages + i), next});
  for (int i = 0; i < messages; ++i) batch.push_back({Op::irecv, at::zeros({elements}, at::kLong), before});
  wait_for(group.batch_isend_irecv(batch));
  for (int i = 0; i < messages; ++i) {
    const at::Tensor& received = batch[static_cast<std::size_t>(messages + i)].tensor;
    EXPECT_TRUE(at::equal(received, at::full({elements}, before * messages + i)));
  }
}

TEST(P2PBatch, GoesRoundOverSharedMemory) {
  for (const int size : {2, 3}) {
    testing::run_group(size, [](const ProcessGroup& group) {
      go_round(group, 1000, 1);
      // More than one rank takes before its sender has to wait, and more bytes.
      go_round(group, 5, 200);
      go_round(group, 1 << 20, 4);
    });
  }
}

TEST(P2PBatch, GoesRoundOverGloo) {
  const Store store = Store::in_memory();
  testing::run_ranks(3, [&](int rank) {
    const ProcessGroup group(rank, 3, store,
                             {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(60)});
    go_round(group, 1000, 1);
    go_round(group, 5, 100);
    go_round(group, 1 << 18, 4);
  });
}

TEST(P2PBatch, RefusesWhatCannotStart) {
  testing::run_group(2, [](const ProcessGroup& group) {
    const int other = 1 - group.rank();
    const auto start = [&](P2POp operation) { return group.batch_isend_irecv({std::move(operation)}); };
    EXPECT_THROW(start({Op::isend, at::ones({2}), 2}), UsageError);
    EXPECT_THROW(start({Op::irecv, at::ones({2}), group.rank()}), UsageError);
    EXPECT_THROW(start({Op::isend, at::ones({2, 2}).select(1, 0), other}), UsageError);
    EXPECT_TRUE(group.batch_isend_irecv({}).empty());
  });
}

}  // namespace
}  // namespace lockstep
