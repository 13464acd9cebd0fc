#include "comm/planner_link.hpp"

#include <chrono>
#include <utility>

#include "comm/backend/cpu_backend.hpp"
#include "comm/group_key_value_store.hpp"
#include "coordination/interruption.hpp"
#include "core/text.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::comm {
namespace {

/// A wait ends with the key. The limit only lets a store that is gone be noticed.
constexpr std::chrono::minutes kLongestAnswer{1};
constexpr const char* kSeed = "elastic/seed";

}  // namespace

PlannerLink::PlannerLink(const Store& store, elastic::RankProcess self)
    : store_(key_value_store(store.clone())), self_(self) {}

void PlannerLink::report(const elastic::RankReport& report) {
  store_->set(elastic::key_of(report), elastic::text_of(report));
}

std::string PlannerLink::await(const std::string& key) {
  const coordination::UninterruptedWaits asks_the_planner;
  while (!store_->wait(key, kLongestAnswer)) {
  }
  return store_->get(key);
}

elastic::Generation PlannerLink::await_call() {
  return parse_number<elastic::Generation>(await(elastic::call_key(self_))).value_or(2);
}

elastic::Decision PlannerLink::await_decision(elastic::Generation generation) {
  return elastic::decision_from(await(elastic::decision_key(generation)));
}

bool PlannerLink::await_end(elastic::Generation generation) {
  return await(elastic::end_key(generation)) == elastic::kMayLeave;
}

std::uint64_t PlannerLink::agree_on_seed(std::uint64_t own) {
  if (self_.rank == 0) store_->set_if_absent(kSeed, std::to_string(own));
  return parse_number<std::uint64_t>(await(kSeed)).value_or(own);
}

std::optional<elastic::Replacement> replacement_of_this_process() {
  return elastic::replacement_from(
      find_variable(process_environment(), elastic::kReplacesVariable).value_or(""));
}

void report_refusal(const Store& store, int rank, const std::string& why) noexcept {
  try {
    const auto replacement = replacement_of_this_process();
    if (!replacement) return;
    PlannerLink link(store, {.rank = rank, .process = replacement->process});
    link.report({.what = elastic::RankReport::What::refused,
                 .process = link.self(),
                 .generation = replacement->generation,
                 .why = why});
  } catch (const std::exception&) {
    // The caller throws what matters.
  }
}

bool has_failed_operation(const ProcessGroup& group) {
  const auto* const cpu = cpu_backend_of(group);
  return cpu != nullptr && cpu->has_failed();
}

std::uint64_t operations_begun(const ProcessGroup& group) {
  const auto* const cpu = cpu_backend_of(group);
  return cpu == nullptr ? 0 : cpu->operations();
}

}  // namespace lockstep::comm
