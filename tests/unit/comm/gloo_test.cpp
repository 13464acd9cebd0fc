#include <gtest/gtest.h>

#include <csignal>

#include "support/ranks.hpp"

namespace lockstep {
namespace {

void answer(int) {}

/// What the process does about SIGPIPE after a group on Gloo was made, when it did `before` about it.
sighandler_t after_gloo(sighandler_t before) {
  const sighandler_t whole_test = std::signal(SIGPIPE, before);
  const Store store = Store::in_memory();
  testing::run_ranks(2, [&](int rank) {
    const ProcessGroup group(rank, 2, store,
                             {.backend = CommBackend::gloo, .timeout = std::chrono::seconds(60)});
    group.all_reduce(at::ones({3}));
  });
  return std::signal(SIGPIPE, whole_test);
}

/// Gloo writes into connections whose other end may be gone.
TEST(Gloo, LeavesNoSigpipeToEndTheProcess) {
  const sighandler_t after = after_gloo(SIG_DFL);
  EXPECT_NE(after, SIG_DFL);
  EXPECT_NE(after, SIG_IGN) << "programs that are started would inherit it";
  EXPECT_EQ(after_gloo(answer), &answer) << "the program's own";
}

}  // namespace
}  // namespace lockstep
