#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/planner_link.hpp"
#include "comm/revocation_watch.hpp"
#include "core/elastic/member.hpp"
#include "lockstep/train/elastic.hpp"
#include "train/elastic/elastic_training.hpp"

namespace lockstep::train {

/// A rank's side of the recoveries of one training: carries out what elastic::Member decides, with the group,
/// the state and the planner's words.
///
///     body runs --CommunicationError--> parked --plan--> group formed again, state taken --> body runs
///         |                               ^  |
///         |                               |  '-- no plan: the error is thrown on
///         '--returned, revoked meanwhile--'
///
/// Two threads: that of the program, and the watch's, which aborts the group when the launcher says so.
class ElasticRun {
 public:
  /// `replacement`: what this process replaces, if it does. `state` must outlive it.
  ElasticRun(ElasticState& state, const Store& store, const std::optional<elastic::Replacement>& replacement);
  ~ElasticRun();
  ElasticRun(const ElasticRun&) = delete;
  ElasticRun& operator=(const ElasticRun&) = delete;

  void run(const std::function<void(ElasticState&)>& body);
  /// See ElasticState.
  void commit();

  /// Whether the next run_elastic() of this process replaces lost ranks. The same on all ranks. *Local*.
  static bool will_recover(const Accelerator& accelerator);
  /// Why ranks of this training cannot be replaced; "" if they can. The same on all ranks. *Local*.
  static std::string why_not(const Accelerator& accelerator);
  /// Calls `body` once.
  static void run_without(ElasticState& state, const std::function<void(ElasticState&)>& body);

 private:
  void run_until_finished(const std::function<void(ElasticState&)>& body);
  void enter(const std::function<void(ElasticState&)>& body);
  void tell_change();
  void refuse(const std::string& why);
  void begin(std::uint64_t step);
  void check_set_up();
  elastic::Generation await_call();
  void join();
  /// True: all ranks have finished, and this one may leave. False: it is parked.
  bool finish();
  void unwind(const std::string& why);
  void report(const elastic::MemberActions& actions);
  void recover(const std::exception_ptr& cause);
  void reform(const elastic::RecoveryPlan& plan);
  void settle(const elastic::RecoveryPlan& plan);
  void note_change(const elastic::RecoveryPlan& plan, const std::vector<int>& before);
  void watch(elastic::Generation generation);
  void begin_step();
  void notice_revocation();
  void demand_success(const char* what) const;
  void demand_place() const;

  ElasticState& state_;
  Accelerator accelerator_;
  Store store_;
  std::optional<elastic::Replacement> replacement_;
  comm::PlannerLink link_;
  ElasticTraining training_;
  std::optional<elastic::Member> member_;
  std::optional<comm::RevocationWatch> watch_;
  std::shared_ptr<comm::GroupObserver> notice_of_losses_;
  /// By rank, the number of its process when the training went on last.
  std::vector<int> processes_;
  /// That is still to be told.
  std::optional<GroupChange> change_;
  bool in_step_ = false;
  /// The step that failed is still to be undone.
  bool undo_is_due_ = false;
};

}  // namespace lockstep::train
