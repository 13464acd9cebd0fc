#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

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
  /// `replacement`: what this process replaces, if it does.
  ElasticRun(const Accelerator& accelerator, const Store& store,
             const std::optional<elastic::Replacement>& replacement);
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
  static void run_without(const Accelerator& accelerator, const std::function<void(ElasticState&)>& body);

 private:
  void run_until_finished(const std::function<void(ElasticState&)>& body);
  void enter(const std::function<void(ElasticState&)>& body);
  void refuse(const std::string& why);
  void begin(std::uint64_t step);
  elastic::Generation await_call();
  void join();
  /// True: all ranks have finished, and this one may leave. False: it is parked.
  bool finish();
  void unwind(const std::string& why);
  void report(const elastic::MemberActions& actions);
  void recover(const std::exception_ptr& cause);
  void reform(const elastic::RecoveryPlan& plan);
  void settle(const elastic::RecoveryPlan& plan);
  void watch(elastic::Generation generation);
  void begin_step();
  void notice_revocation();
  void demand_success(const char* what) const;

  Accelerator accelerator_;
  Store store_;
  std::optional<elastic::Replacement> replacement_;
  comm::PlannerLink link_;
  ElasticTraining training_;
  std::optional<elastic::Member> member_;
  std::optional<comm::RevocationWatch> watch_;
  std::shared_ptr<comm::GroupObserver> notice_of_losses_;
  ElasticState state_;
  bool in_step_ = false;
  /// The step that failed is still to be undone.
  bool undo_is_due_ = false;
};

}  // namespace lockstep::train
