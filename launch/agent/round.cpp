#include "agent/round.hpp"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <thread>
#include <utility>

#include "core/file_system.hpp"
#include "core/host_name.hpp"
#include "core/runtime/process_handle.hpp"
#include "core/runtime/stop_signals.hpp"
#include "core/time.hpp"
#include "failure/error_file.hpp"
#include "lockstep/core/error.hpp"
#include "process/affinity.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

/// Time for a process to disappear after SIGKILL. After that it hangs in the kernel and cannot be killed.
constexpr std::chrono::seconds kKillTime{10};
/// How many looks, kPoll apart, must find all signals of a process blocked: then it does so for good.
constexpr int kLooksAtBlocked = 20;
/// --keep-daemons: a daemon starts in its rank's session, and leaves it within this time.
constexpr std::chrono::milliseconds kLeaveTime{500};
/// How often to look for what announces itself by no event.
constexpr std::chrono::milliseconds kPoll{50};
/// Ranks that save their state do so at about the same time.
constexpr std::chrono::seconds kSavingTime{10};

/// If several ranks are found dead at once, one that was killed by a signal is the first: ranks that lose a
/// peer exit with their own error.
std::size_t first_of(const std::vector<Worker>& workers, const std::vector<std::size_t>& failed) {
  const auto crashed =
      std::ranges::find_if(failed, [&](std::size_t i) { return WIFSIGNALED(*workers[i].status); });
  return crashed == failed.end() ? std::ranges::min(failed) : *crashed;
}

/// One error instead of one per rank from its interpreter.
void check_script(const LaunchConfig& config) {
  constexpr int kPythonsStatus = 2;
  for (int rank = 0; rank < config.local_world_size; ++rank) {
    const std::string script = substitute_macros(config.script, {{"local_rank", std::to_string(rank)}});
    if (script.empty() || access(script.c_str(), F_OK) == 0) continue;
    throw SpawnError(
        fmt::format("cannot start '{0}': no such Python script{1}. Expected the path of a file on "
                    "this host; a module is started by --module.",
                    script, script.starts_with('/') ? "" : " in this folder"),
        kPythonsStatus);
  }
}

/// A crashed program could not demangle the names of its functions.
void make_stack_readable(nlohmann::json& error) {
  const auto stack = nlohmann::json::json_pointer("/message/extraInfo/py_callstack");
  if (error.is_object() && error.contains(stack) && error[stack].is_string())
    error[stack] = readable_stack(error[stack].get<std::string>());
}

}  // namespace

Round::Round(const LaunchConfig& config, const Environment& environment, const WorkerSpec& spec,
             const ProcessSupervisor& supervisor, LogForwarder& forwarder)
    : config_(config),
      environment_(environment),
      spec_(spec),
      supervisor_(supervisor),
      forwarder_(forwarder) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Round::~Round() {
  // Processes still run only after an exception. The time is limited, so that a process that cannot be killed
  // (stuck in a driver) does not block the launcher.
  const auto deadline = net::Clock::now() + std::chrono::seconds(5);
  while (has_children() && net::Clock::now() < deadline) {
    kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    reap();
  }
  for (const auto& worker : workers_) supervisor_.reaper.release(worker.pid);
  for (const auto& spare : spares_) supervisor_.reaper.release(spare.pid);
}

void Round::prepare() {
  check_script(config_);
  oom_kills_before_ = oom_kills();
  const bool alone = spec_.assignment.group_world_size == 1;
  monitor_.emplace(supervisor_.reaper.folder(), spec_.assignment, config_.local_world_size,
                   alone ? "" : host_name());
  next_look_ = net::Clock::now() + HeartbeatMonitor::kInterval;
}

bool Round::start_next() {
  const std::size_t rank = workers_.size();
  if (rank == static_cast<std::size_t>(config_.local_world_size) || stage_ != Stage::running) return false;
  const auto& replaces = spec_.assignment.replaces;
  const ReplaceRank how = rank < replaces.size() ? replaces[rank] : ReplaceRank{};
  workers_.push_back({.local_rank = static_cast<int>(rank), .process = how.process});
  try {
    starting_ = rank;
    starts_spare_ = false;
    spawn(workers_.back(), monitor_->file(static_cast<int>(rank)), how.replaces);
  } catch (...) {
    workers_.pop_back();
    throw;
  }
  return true;
}

bool Round::is_starting() {
  // Long enough for nearly every start, so that no extra turn of the event loop is needed.
  constexpr std::chrono::milliseconds kUsual{20};
  if (!spawned_) return false;
  // If it was stopped meanwhile, waitpid tells what became of it.
  Worker& worker = starting();
  if (!worker.stopped) {
    try {
      if (!spawned_->has_begun(kUsual)) return true;
    } catch (const SpawnError& error) {
      supervisor_.reaper.release(worker.pid);
      spawned_.reset();
      if (worker.process > 0) {
        const int rank = spec_.assignment.first_rank + worker.local_rank;
        forwarder_.console().say("{}: {}",
                                 starts_spare_ ? fmt::format("the spare of rank {} cannot be started", rank)
                                               : fmt::format("rank {} cannot be started again", rank),
                                 error.what());
        end_unstarted(worker, error.exit_code() << 8);
        return false;
      }
      workers_.pop_back();
      throw;
    }
  }
  spawned_.reset();
  return false;
}

bool Round::reap() {
  std::vector<std::size_t> failed;
  int status = 0;
  rusage used{};
  for (pid_t pid = 0; (pid = wait4(-1, &status, WNOHANG, &used)) > 0;) {
    asked_.erase(pid);
    const auto is_ended = [&](const Worker& worker) { return worker.pid == pid && !worker.status; };
    if (const auto spare = std::ranges::find_if(spares_, is_ended); spare != spares_.end()) {
      spare->status = status;
      spare->ended = std::time(nullptr);
      killpg(pid, SIGKILL);
      supervisor_.reaper.release(pid);
      continue;
    }
    const auto found = std::ranges::find_if(workers_, is_ended);
    if (found == workers_.end()) continue;
    found->status = status;
    found->ended = std::time(nullptr);
    found->peak_memory = std::int64_t{used.ru_maxrss} * 1024;
    // The group still exists if the rank left processes behind. An empty one must be released, as its number
    // may be reused.
    found->left_processes = killpg(pid, 0) == 0;
    if (!found->left_processes) supervisor_.reaper.release(pid);
    ended_.push_back(static_cast<std::size_t>(found - workers_.begin()));
    if (found->failed()) failed.push_back(static_cast<std::size_t>(found - workers_.begin()));
    if (found->preempted() && !saved_report_) saved_report_ = net::Clock::now() + kSavingTime;
  }
  if (failed.empty() || first_failure_) return false;
  first_failure_ = first_of(workers_, failed);
  return true;
}

void Round::signal(int number, bool stopping) {
  for (auto& worker : workers_) {
    if (worker.status) continue;
    killpg(worker.pid, number);
    // A stopped (SIGSTOP) process would not handle it.
    if (stopping) killpg(worker.pid, SIGCONT);
    worker.stopped = worker.stopped || stopping;
    worker.killed = worker.killed || number == SIGKILL;
  }
}

void Round::pass_on(int number) {
  if (number != SIGUSR1 && number != SIGUSR2) return signal(number, false);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    HeldSignal held;
    if (workers_[i].status || hand_over(workers_[i], number, held)) continue;
    held_.emplace(std::pair(i, number), std::move(held));
  }
  if (!held_.empty()) next_poll_ = net::Clock::now() + kPoll;
}

// A program may take signals by signalfd or another thread's sigwait, and then its first thread blocks them.
// A shell or posix_spawn also blocks signals, all of them and only around the start of a child; one sent then
// would end the program afterwards. So who blocks even SIGSEGV must have done so at many looks.
bool Round::hand_over(const Worker& worker, int number, HeldSignal& held) const {
  // Between fork and exec it has the launcher's handlers.
  if (spawned_ && spawned_->pid() == worker.pid) return false;
  bool known = false;
  std::map<pid_t, int> looks;
  for (const pid_t pid : all_processes()) {
    if (getpgid(pid) != worker.pid) continue;
    const SignalMasks masks(pid);
    bool takes = masks.handles(number) || awaits_signal(pid, number);
    if (!takes && masks.blocks(number))
      takes = !masks.blocks(SIGSEGV) || (looks[pid] = held.looks[pid] + 1) > kLooksAtBlocked;
    if (takes) ::kill(pid, number);
    known = known || takes || masks.ignores(number);
  }
  held.looks = std::move(looks);
  return known;
}

void Round::hand_over_held() {
  std::map<int, std::vector<int>> waiting;  // By signal: the ranks of which nothing has been said yet.
  for (auto next = held_.begin(); next != held_.end();) {
    const auto current = next++;
    auto& [key, held] = *current;
    const Worker& worker = workers_[key.first];
    if (worker.status || hand_over(worker, key.second, held))
      held_.erase(current);
    else if (!std::exchange(held.reported, true))
      waiting[key.second].push_back(spec_.assignment.first_rank + worker.local_rank);
  }
  for (const auto& [number, ranks] : waiting)
    forwarder_.console().say("{} is held back until {} {} a handler for it, because it would end {}",
                             signal_name(number), rank_list(ranks), ranks.size() == 1 ? "has" : "have",
                             ranks.size() == 1 ? "the rank" : "them");
}

void Round::stop_at_once() {
  for (const auto& worker : workers_) {
    // The SIGTERM sent below merges with this one while it is pending.
    if (!worker.status) ::sigqueue(worker.pid, SIGTERM, {.sival_int = kTerminateNow});
  }
  stop(SIGTERM);
}

void Round::stop(int signal_number) {
  signal(signal_number, true);
  begin_stopping();
}

void Round::begin_stopping() {
  if (stage_ != Stage::running) return;
  stage_ = Stage::stopping;
  replacements_.clear();
  kill_spares();
  shutdown_deadline_ = net::Clock::now() + config_.shutdown_timeout;
}

void Round::kill() {
  if (stage_ != Stage::killing) shutdown_deadline_ = net::Clock::now() + kKillTime;
  stage_ = Stage::killing;
  signal(SIGKILL, true);
  kill_spares();
  if (!has_children()) return;
  for (const pid_t pid : orphans()) ::kill(pid, SIGKILL);
}

bool Round::any_rank_runs() const {
  return std::ranges::any_of(workers_, [](const Worker& worker) { return !worker.status; });
}

bool Round::has_children() const {
  if (config_.options.keep_daemons || supervisor_.may_have_strangers) {
    const auto runs = [](const Worker& spare) { return spare.pid > 0 && !spare.status; };
    return any_rank_runs() || std::ranges::any_of(spares_, runs) || !orphans().empty();
  }
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

std::vector<pid_t> Round::orphans() const {
  std::vector<pid_t> result = all_processes();
  std::erase_if(result, [this](pid_t pid) {
    if (process_stat(pid).parent != getpid() || pid == supervisor_.reaper.pid()) return true;
    const auto is_rank = [&](const Worker& worker) { return worker.pid == pid && !worker.status; };
    return std::ranges::any_of(workers_, is_rank) || std::ranges::any_of(spares_, is_rank) || !is_of_job(pid);
  });
  return result;
}

bool Round::is_of_job(pid_t pid) const {
  // Each rank leads its own session, which contains what it starts unless that leaves.
  const pid_t session = getsid(pid);
  const bool in_session = std::ranges::find(workers_, session, &Worker::pid) != workers_.end() ||
                          std::ranges::find(spares_, session, &Worker::pid) != spares_.end() ||
                          std::ranges::count(replaced_, session) > 0;
  if (config_.options.keep_daemons || in_session) return in_session;
  return !supervisor_.may_have_strangers || supervisor_.reaper.has_tag(pid);
}

net::Deadline Round::deadline() const {
  const auto next_look = stage_ == Stage::running ? next_look_ : net::Deadline::max();
  const auto start_deadline = spawned_ ? spawned_->deadline() : net::Deadline::max();
  return std::min({start_deadline, shutdown_deadline_, next_look, next_poll_});
}

std::vector<RankStatus> Round::on_deadline() {
  const auto now = net::Clock::now();
  if (now >= shutdown_deadline_) on_shutdown_deadline();
  if (now >= next_poll_) {
    hand_over_held();
    next_poll_ = held_.empty() ? net::Deadline::max() : now + kPoll;
  }
  if (stage_ != Stage::running || now < next_look_) return {};
  next_look_ = now + HeartbeatMonitor::kInterval;
  if (saved_report_ && now >= *saved_report_) report_saved_ranks();
  return statuses();
}

/// Nothing else would say what the job waits for.
void Round::report_saved_ranks() {
  std::vector<int> saved, running;
  for (const auto& worker : workers_) {
    if (worker.preempted()) saved.push_back(spec_.assignment.first_rank + worker.local_rank);
    if (!worker.status) running.push_back(spec_.assignment.first_rank + worker.local_rank);
  }
  if (!running.empty())
    forwarder_.console().say("{} saved the state and exited (code {}); the job waits for {} on this node",
                             rank_list(saved), kPreemptedExitCode, rank_list(running));
  saved_report_ = net::Deadline::max();
}

bool Round::mark_hung(int rank, const std::string& text) {
  if (stage_ != Stage::running || first_failure_) return false;
  hang_text_ = text;
  first_failure_ = static_cast<std::size_t>(rank - spec_.assignment.first_rank);
  return true;
}

bool Round::has_rank(int rank) const {
  return rank >= spec_.assignment.first_rank &&
         static_cast<std::size_t>(rank - spec_.assignment.first_rank) < workers_.size();
}

void Round::on_shutdown_deadline() {
  if (stage_ == Stage::killing) {
    abandoned_ = true;
    shutdown_deadline_ = net::Deadline::max();
    forwarder_.console().say("processes did not exit after SIGKILL; giving up on them");
    return;
  }
  forwarder_.console().say(
      "processes are still running {} after they were asked to stop: killing them (--shutdown-timeout)",
      format_seconds(config_.shutdown_timeout));
  kill();
}

bool Round::end_orphans() {
  reap();
  if (abandoned_ || !has_children()) return false;
  if (stage_ == Stage::killing) {
    kill();
    return true;
  }
  if (config_.options.keep_daemons) {
    const auto now = net::Clock::now();
    next_poll_ = now + kPoll;
    if (!leave_by_) leave_by_ = now + kLeaveTime;
    if (now < *leave_by_) return true;
  }
  for (const pid_t pid : orphans()) {
    if (asked_.insert(pid).second) ::kill(pid, SIGTERM);
  }
  if (stage_ == Stage::running) stop(SIGTERM);
  return true;
}

bool Round::succeeded() const {
  return std::ranges::all_of(workers_, [](const Worker& worker) { return worker.status == 0; });
}

bool Round::preempted() const {
  const auto saved = [](const Worker& worker) { return worker.status == 0 || worker.preempted(); };
  return !succeeded() && std::ranges::all_of(workers_, saved);
}

ProcessFailure Round::record_for(int local_rank) const {
  const Assignment& assignment = spec_.assignment;
  const bool alone = assignment.group_world_size == 1;
  return {.rank = assignment.first_rank + local_rank,
          .local_rank = local_rank,
          .node = alone ? "" : fmt::format("node {}, host {}", assignment.group_rank, host_name()),
          .host = host_name(),
          .program = config_.program};
}

ProcessFailure Round::not_started(const std::exception& error) const {
  ProcessFailure result = record_for(static_cast<int>(workers_.size()));
  const auto* of_program = dynamic_cast<const SpawnError*>(&error);
  result.message = error.what();
  result.status = (of_program == nullptr ? 1 : of_program->exit_code()) << 8;
  return result;
}

std::optional<std::int64_t> Round::new_oom_kills() const {
  const auto kills = oom_kills();
  return kills && oom_kills_before_ ? std::optional(*kills - *oom_kills_before_) : std::nullopt;
}

ProcessFailure Round::record(const Worker& worker, std::optional<std::int64_t> kills) const {
  const WorkerSpec spec = spec_of(worker);
  const std::string file = error_file(spec, worker.local_rank);
  ProcessFailure result = record_for(worker.local_rank);
  result.pid = worker.pid;
  result.status = worker.status;
  result.stopped = worker.stopped;
  result.killed = worker.killed;
  result.time = worker.ended;
  result.error = error_content(file);
  make_stack_readable(result.error);
  result.message = message_of(result.error);
  result.is_secondary = is_secondary(result.error);
  result.error_file = named_error_file(file, !config_.log_dir.empty());
  result.oom_kills = kills;
  result.peak_memory = worker.peak_memory;
  if (result.is_secondary) {
    const std::string lost = lost_peers(statuses(), result.rank);
    if (!lost.empty()) result.message += "\n" + lost;
  }
  if (!hang_text_.empty() && first_failure_ && &worker == &workers_[*first_failure_]) {
    result.hung = true;
    result.message = hang_text_;
  }
  add_stderr_tail(result, config_, spec, forwarder_);
  return result;
}

std::vector<ProcessFailure> Round::records() const {
  std::vector<ProcessFailure> result;
  const auto kills = new_oom_kills();
  for (const auto& worker : workers_) result.push_back(record(worker, kills));
  return result;
}

}  // namespace lockstep::launch
