#include "comm/observed_work.hpp"

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {
namespace {

/// As after an error of a GPU, which every further call reports.
class BrokenWork final : public c10d::Work {
 public:
  explicit BrokenWork(int& questions) : questions_(questions) {}
  bool isCompleted() override {
    ++questions_;
    throw CommunicationError("an illegal memory access was encountered");
  }

 private:
  int& questions_;
};

std::shared_ptr<GroupObserver> observer_of_one() {
  const auto members = Membership::whole(0, 1);
  auto diagnostics = Diagnostics::make(members, Store::in_memory(), {});
  return std::make_shared<GroupObserver>(
      diagnostics, GroupObserver::Place{members, "world", std::chrono::seconds(1)}, "nccl", nullptr);
}

int questions_of_one_that_goes(Ends ends) {
  int questions = 0;
  const auto observer = observer_of_one();
  const Ticket ticket = observer->begin({.name = "all_reduce"}, false);
  { const ObservedWork work(c10::make_intrusive<BrokenWork>(questions), observer, ticket, ends); }
  return questions;
}

TEST(ObservedWork, GoesWithoutAQuestionWhereItsEndIsNotSeen) {
  EXPECT_EQ(questions_of_one_that_goes(Ends::unseen), 0);
}

TEST(ObservedWork, GoesInPeaceWhenTheBackendIsBroken) {
  EXPECT_EQ(questions_of_one_that_goes(Ends::by_wait), 1);
}

}  // namespace
}  // namespace lockstep::comm
