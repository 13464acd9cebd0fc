#include "agent/agent.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "lockstep/core/error.hpp"
#include "process/memory_events.hpp"
#include "process/ports.hpp"
#include "process/scoped_binding.hpp"
#include "report/error_file.hpp"
#include "report/failure_report.hpp"

namespace lockstep::launch {
namespace {

/// How long a process may need to vanish after SIGKILL. One that takes longer hangs in the kernel, and nobody
/// can end it.
constexpr std::chrono::seconds kKillTime{10};

/// The exit status of a job that was ended because it stood still: timeout(1)'s.
constexpr int kStandstillStatus = 124;

/// Of several ranks found dead at once, one that was killed by a signal came before one that exited: ranks
/// that lose a partner exit with an error of their own.
std::size_t first_of(const std::vector<Worker>& workers, const std::vector<std::size_t>& failed) {
  const auto crashed = std::find_if(failed.begin(), failed.end(),
                                    [&](std::size_t i) { return WIFSIGNALED(*workers[i].status); });
  return crashed == failed.end() ? *std::min_element(failed.begin(), failed.end()) : *crashed;
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error("cannot make the folder '" + folder.string() + "': " + failure.message() + ".");
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

Agent::Agent(const LaunchPlan& plan, const Environment& environment, std::ostream& log)
    : plan_(plan),
      environment_(environment),
      log_(log),
      folder_(environment),
      guardian_(folder_.path()),
      restarts_(plan.max_restarts, plan.restart_backoff) {}

int Agent::run() {
  const std::string notice = thread_notice(plan_, environment_);
  if (!notice.empty()) log_ << "lockstep run: " + notice + "\n" << std::flush;
  if (!plan_.log_dir.empty()) log_ << "lockstep run: log files are in " + plan_.log_dir + "\n" << std::flush;
  for (int restart = 0;; ++restart) {
    const Attempt attempt = next_attempt(restart);
    start_ranks(attempt);
    supervise();
    // The ranks' last words come before the report, and the report before the wait for what they left behind.
    relay_.flush();
    if (first_failure_) report_failure(attempt);
    if (standstill_) report_standstill();
    end_leftovers();
    relay_.finish();
    if (!first_failure_ && !standstill_) return end_signal_ == 0 ? 0 : 128 + end_signal_;
    if (!starts_again(restart)) {
      tell_who_started_us(attempt);
      return exit_code();
    }
  }
}

bool Agent::starts_again(int restart) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto lived = duration_cast<milliseconds>(SignalQueue::Clock::now() - started_);
  const auto decision = restarts_.after({lived, watch_->best_step()});
  if (!decision.reason.empty()) log_ << "lockstep run: " + decision.reason + "\n" << std::flush;
  if (!decision.again || end_signal_ != 0 || abandoned_) return false;
  const std::string after =
      decision.pause.count() == 0 ? "" : ", after a pause of " + seconds_text(decision.pause);
  log_ << "lockstep run: restart " + std::to_string(restart + 1) + " of " +
              std::to_string(plan_.max_restarts) + after + "\n"
       << std::flush;
  pause(decision.pause);
  return end_signal_ == 0;
}

void Agent::pause(std::chrono::milliseconds time) {
  const auto until = SignalQueue::Clock::now() + time;
  while (end_signal_ == 0 && SignalQueue::Clock::now() < until) {
    const auto event = signals_.wait(until);
    if (event.wakeup == SignalQueue::Wakeup::signal && ends_job(event.signal_number))
      end_signal_ = event.signal_number;
  }
}

Attempt Agent::next_attempt(int restart_count) {
  Attempt attempt;
  attempt.restart_count = restart_count;
  attempt.master_port = plan_.master_port ? *plan_.master_port : free_port();
  attempt.folder = plan_.log_dir.empty() ? folder_.path() : plan_.log_dir;
  for (int rank = 0; rank < plan_.local_world_size; ++rank) {
    make_folder(std::filesystem::path(error_file(attempt, rank)).parent_path());
  }
  return attempt;
}

void Agent::start_ranks(const Attempt& attempt) {
  group_.emplace(signals_, guardian_);
  memory_kills_before_ = out_of_memory_kills();
  stage_ = Stage::running;
  deadline_.reset();
  first_failure_.reset();
  standstill_.reset();
  started_ = SignalQueue::Clock::now();
  watch_.reset();
  watch_.emplace(folder_.path(), attempt.restart_count, plan_.local_world_size, 0, "",
                 WatchOptions{.timeout = plan_.heartbeat_timeout});
  for (int rank = 0; rank < plan_.local_world_size; ++rank) {
    const ScopedBinding bound(plan_.bindings.empty() ? CpuBinding{}
                                                     : plan_.bindings[static_cast<std::size_t>(rank)]);
    Environment environment = worker_environment(plan_, attempt, rank, environment_);
    watch_->add_to(environment, rank);
    group_->start(rank, worker_command(plan_, rank), environment, open_output(plan_, attempt, rank, relay_));
  }
}

void Agent::supervise() {
  while (group_->running() > 0 && !abandoned_) wait_for_event();
}

Agent::TimePoint Agent::next_deadline() const {
  return deadline_ ? std::min(*deadline_, watch_->next_look()) : watch_->next_look();
}

void Agent::wait_for_event() { on_event(signals_.wait(next_deadline(), relay_.descriptor())); }

void Agent::on_event(const SignalQueue::Event& event) {
  switch (event.wakeup) {
    case SignalQueue::Wakeup::signal:
      return on_signal(event.signal_number);
    case SignalQueue::Wakeup::deadline:
      return deadline_ && SignalQueue::Clock::now() >= *deadline_ ? on_deadline() : look_at_ranks();
    case SignalQueue::Wakeup::input:
      return relay_.pump();
  }
}

void Agent::on_signal(int number) {
  if (number == SIGCHLD) {
    on_child_ended();
  } else if (number == stacks_request()) {
    print_stacks();
  } else if (!ends_job(number)) {
    group_->signal(number, false);
  } else if (end_signal_ != 0) {
    log_ << "lockstep run: " + signal_name(number) + " came again: the ranks are killed\n" << std::flush;
    kill();
  } else {
    end_signal_ = number;
    log_ << "lockstep run: " + signal_name(number) + " came and was passed on; the ranks have " +
                seconds_text(plan_.shutdown_timeout) + " to end\n"
         << std::flush;
    stop(number);
  }
}

void Agent::on_child_ended() {
  auto failed = group_->reap();
  std::erase_if(failed, [this](std::size_t i) { return !group_->workers()[i].failed(); });
  if (failed.empty() || first_failure_) return;
  first_failure_ = first_of(group_->workers(), failed);
  stop(SIGTERM);
}

void Agent::stop(int signal_number) {
  group_->signal(signal_number, true);
  if (stage_ != Stage::running) return;
  stage_ = Stage::stopping;
  deadline_ = SignalQueue::Clock::now() + plan_.shutdown_timeout;
}

void Agent::kill() {
  if (stage_ != Stage::killing) deadline_ = SignalQueue::Clock::now() + kKillTime;
  stage_ = Stage::killing;
  group_->kill();
}

void Agent::look_at_ranks() {
  auto standstill = watch_->look(group_->workers(), log_);
  if (!standstill || stage_ != Stage::running) return;
  standstill_ = std::move(standstill);
  log_ << "lockstep run: the job stands still for " + seconds_text(plan_.heartbeat_timeout) +
              " (--heartbeat-timeout): it is ended\n"
       << std::flush;
  print_stacks();
  stop(SIGTERM);
}

void Agent::print_stacks() {
  log_ << stacks_report(dump_stacks(watch_->stack_targets(group_->workers()), environment_)) << std::flush;
}

/// Once more at the end, where the cause is looked for.
void Agent::report_standstill() {
  const auto& stuck = standstill_->stuck;
  cause_ = stuck.empty() ? 0 : static_cast<std::size_t>(stuck.front());
  log_ << "lockstep run: FAILED: " + standstill_->text + "\n" << std::flush;
}

void Agent::on_deadline() {
  if (stage_ == Stage::killing) {
    abandoned_ = true;
    log_ << "lockstep run: processes do not end even after SIGKILL; they are left to the system\n"
         << std::flush;
  } else {
    log_ << "lockstep run: processes still run " + seconds_text(plan_.shutdown_timeout) +
                " after they were told to stop: they are killed (--shutdown-timeout)\n"
         << std::flush;
    kill();
  }
}

void Agent::end_leftovers() {
  group_->reap();
  while (group_->has_children() && !abandoned_) {
    if (stage_ == Stage::killing) {
      group_->kill();
    } else {
      group_->terminate_leftovers();
    }
    if (stage_ == Stage::running) stop(SIGTERM);
    wait_for_event();
  }
}

void Agent::report_failure(const Attempt& attempt) {
  if (const std::string text = early_leavers(watch_->views(group_->workers())); !text.empty()) {
    log_ << "lockstep run: " + text + "\n" << std::flush;
  }
  std::vector<std::string> messages;
  for (const auto& worker : group_->workers())
    messages.push_back(error_message(error_file(attempt, worker.local_rank)));
  cause_ = root_cause(group_->workers(), *first_failure_, messages);
  log_ << failure_report(group_->workers(), cause_, plan_.program, messages, details_of_cause(attempt))
       << std::flush;
}

CauseDetails Agent::details_of_cause(const Attempt& attempt) const {
  constexpr int kLines = 10;
  CauseDetails details;
  const auto kills = out_of_memory_kills();
  if (kills && memory_kills_before_) details.out_of_memory_kills = *kills - *memory_kills_before_;
  const int rank = group_->workers()[cause_].local_rank;
  const Sink sink = plan_.outputs[static_cast<std::size_t>(rank)].err;
  if (plan_.log_dir.empty() || (sink != Sink::file && sink != Sink::relay)) return details;
  details.log_file = std::filesystem::path(error_file(attempt, rank)).parent_path() / "stderr.log";
  details.last_lines = last_lines(details.log_file, kLines);
  return details;
}

int Agent::exit_code() const {
  if (standstill_) return kStandstillStatus;
  // A cause that was stopped before it could end by itself has no exit code of its own.
  const Worker& cause = group_->workers()[cause_];
  return exit_code_of(*(cause.failed() ? cause : group_->workers()[*first_failure_]).status);
}

void Agent::tell_who_started_us(const Attempt& attempt) const {
  const std::string file = find_variable(environment_, "TORCHELASTIC_ERROR_FILE").value_or("");
  try {
    pass_on_error_file(error_file(attempt, group_->workers()[cause_].local_rank), file, exit_code());
  } catch (const Error& error) {
    log_ << std::string("lockstep run: the error is not passed on to TORCHELASTIC_ERROR_FILE: ") +
                error.what() + "\n"
         << std::flush;
  }
}

}  // namespace lockstep::launch
