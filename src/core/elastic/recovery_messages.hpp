#pragma once

#include <optional>
#include <string>

#include "core/elastic/recovery_plan.hpp"

namespace lockstep::elastic {

// The keys of the job's store by which ranks and planner talk. All are below "elastic/", each is written
// once, and the values are JSON. A rank that waits does so for a key of the planner's.

/// Begins the keys that ranks write: the launcher watches them.
inline constexpr const char* kReportPrefix = "elastic/report/";
/// The prefix of a RevocationWatch (src/comm), which waits for the two keys after it.
inline constexpr const char* kWatchPrefix = "elastic";

/// Why that generation has ended. The planner writes it before the ranks' wake keys.
std::string revoked_key(Generation generation);
std::string wake_key(Generation generation, int rank);
/// What the ranks do that wait after a generation was revoked: a Decision.
std::string decision_key(Generation generation);
/// For ranks that have nothing more to train: whether that generation was revoked, or they may leave.
std::string end_key(Generation generation);

/// The generation for which the spare parks, as number: it takes the place of its rank's process.
std::string call_key(const RankProcess& spare);

/// Values of end_key().
inline constexpr const char* kMayLeave = "leave";
inline constexpr const char* kMustHelp = "revoked";

/// What a rank reports.
struct RankReport {
  enum class What {
    begun,     // It has begun its training, and can be recovered from now on.
    suspect,   // A communication failed.
    parked,    // It waits for the decision on `generation`.
    finished,  // It has nothing more to train in `generation`.
    refused,   // Its program has a mistake that a new process would repeat.
    ready,     // It is a spare that has done its set-up, and waits for its call.
  };
  What what = What::begun;
  RankProcess process;
  Generation generation = 1;
  HeldState held = {};
  std::string why = {};
  /// begun, ready, and parked of a new process: what the program is and has prepared, a JSON object. All
  /// processes of a rank have the same.
  std::string program = {};
};

/// The key of a report; each report has its own.
std::string key_of(const RankReport& report);
std::string text_of(const RankReport& report);
/// Throws DataError for a text that is no report.
RankReport report_from(const std::string& text);

/// In what two programs (RankReport::program) differ: "arguments: [...] before, [...] now"; "" if they are
/// the same. Of objects, what one of them lacks is no difference: libraries are loaded when they are needed.
std::string difference_of_programs(const std::string& before, const std::string& now);

/// The next generation's plan, or none, and why.
struct Decision {
  std::optional<RecoveryPlan> plan = {};
  std::string why = {};
};
std::string text_of(const Decision& decision);
/// Throws DataError for a text that is no decision.
Decision decision_from(const std::string& text);

/// What a new process reads in its environment (LOCKSTEP_REPLACES): that it replaces another one of its rank,
/// and waits for the decision on `generation`. "2:3" is the rank's process number 2, for generation 3;
/// "2:spare" hears of its generation by call_key().
struct Replacement {
  int process = 1;
  /// 0: a spare.
  Generation generation = 2;
  bool is_spare() const noexcept { return generation == 0; }
};
inline constexpr const char* kReplacesVariable = "LOCKSTEP_REPLACES";
/// How many recoveries the launcher allows; unset or 0: none.
inline constexpr const char* kRecoveriesVariable = "LOCKSTEP_MAX_RECOVERIES";
std::string text_of(const Replacement& replacement);
/// Nullopt for an empty text. Throws UsageError for any other text.
std::optional<Replacement> replacement_from(const std::string& text);

}  // namespace lockstep::elastic
