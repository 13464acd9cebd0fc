// Messages between two ranks: compared in detail, and their futures.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::contains_all;
using testing::message_of;

/// Ranks that compare everything.
void run_messages(int size, CommBackend backend, const std::function<void(const ProcessGroup&)>& body) {
  const Store store = Store::in_memory();
  testing::run_ranks(size, [&](int rank) {
    DiagnosticsOptions diagnostics;
    diagnostics.check = CollectiveCheckLevel::detail;
    body(ProcessGroup(rank, size, store,
                      {.backend = backend, .timeout = std::chrono::seconds(30), .diagnostics = diagnostics}));
  });
}

/// The second of the two finds out, and the first is none the worse for it.
TEST(Messages, AreComparedAndNotHeldBack) {
  run_messages(2, CommBackend::gloo, [](const ProcessGroup& group) {
    const at::Tensor four = at::full({4}, 7.0F), received = at::zeros({4});
    if (group.rank() == 1) {
      Work later = group.recv_async(received, 0);
      group.barrier();
      later.wait();
      EXPECT_TRUE(at::equal(received, four));
      return;
    }
    group.barrier();
    const auto text = message_of<CommunicationError>([&] { group.send(at::ones({3}), 1); });
    EXPECT_TRUE(contains_all(text, {"message 1 with tag 0 from rank 0 to rank 1", "sends 3 x Float",
                                    "rank 1 receives 4 x Float"}));
    group.send(four, 1);
  });
}

/// However many are under way, and in whichever order they come.
TEST(Messages, HaveFuturesThatEndOnTheirOwn) {
  constexpr int kMessages = 5;
  for (const auto backend : {CommBackend::gloo, CommBackend::shm}) {
    run_messages(2, backend, [](const ProcessGroup& group) {
      const at::Tensor go = at::zeros({1});
      if (group.rank() == 0) {
        for (int tag = kMessages - 1; tag >= 0; --tag) {
          group.send(at::full({2}, tag), 1, tag);
          group.recv(go, 1, kMessages);
        }
        return;
      }
      std::vector<at::Tensor> received;
      std::vector<c10::intrusive_ptr<c10::ivalue::Future>> futures;
      for (int tag = 0; tag < kMessages; ++tag) {
        std::vector<at::Tensor> tensors{at::zeros({2}, at::kLong)};
        received.push_back(tensors.front());
        futures.push_back(group.c10d_process_group()->recv(tensors, 0, tag)->getFuture());
      }
      for (int tag = kMessages - 1; tag >= 0; --tag) {
        const auto place = static_cast<std::size_t>(tag);
        futures[place]->waitAndThrow();
        EXPECT_TRUE(at::equal(received[place], at::full({2}, tag)));
        group.send(go, 0, kMessages);
      }
    });
  }
}

/// Also while another thread waits for the same message.
TEST(Messages, HaveFutures) {
  for (const auto backend : {CommBackend::gloo, CommBackend::shm}) {
    run_messages(2, backend, [](const ProcessGroup& group) {
      if (group.rank() == 0) return group.send(at::full({4}, 7.0F), 1);
      std::vector<at::Tensor> tensors{at::zeros({4})};
      const auto work = group.c10d_process_group()->recv(tensors, 0, 0);
      const auto future = work->getFuture();
      work->wait();
      future->waitAndThrow();
      EXPECT_TRUE(at::equal(future->value().toTensorVector().at(0), at::full({4}, 7.0F)));
    });
  }
}

}  // namespace
}  // namespace lockstep
