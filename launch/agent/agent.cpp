#include "agent/agent.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <ostream>

#include "lockstep/core/error.hpp"
#include "process/memory_events.hpp"
#include "process/ports.hpp"
#include "report/error_file.hpp"
#include "report/failure_report.hpp"

namespace lockstep::launch {
namespace {

/// How long a process may need to vanish after SIGKILL. One that takes longer hangs in the kernel, and nobody
/// can end it.
constexpr std::chrono::seconds kKillTime{10};

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

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The error file as a report names it: where it stays, and where something is wrong with it.
std::string error_file_text(const std::string& path, bool kept) {
  const std::string fault = error_file_fault(path);
  if (!fault.empty()) return path + " (" + fault + ")";
  return kept && std::filesystem::exists(path) ? path : "";
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + " s";
}

}  // namespace

Agent::Agent(const LaunchPlan& plan, const Environment& environment, Console& console)
    : plan_(plan),
      environment_(environment),
      console_(console),
      log_(console.log()),
      signals_(plan.end_signals),
      folder_(environment),
      guardian_(folder_.path()),
      relay_(console) {}

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
    end_leftovers();
    relay_.finish();
    if (!first_failure_) return end_signal_ == 0 ? 0 : 128 + end_signal_;
    const bool again = restart < plan_.max_restarts && end_signal_ == 0 && !abandoned_;
    if (!again) {
      tell_who_started_us(attempt);
      return exit_code();
    }
    log_ << "lockstep run: restart " + std::to_string(restart + 1) + " of " +
                std::to_string(plan_.max_restarts) + "\n"
         << std::flush;
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
  for (int rank = 0; rank < plan_.local_world_size; ++rank) {
    group_->start(rank, worker_command(plan_, rank), worker_environment(plan_, attempt, rank, environment_),
                  open_output(plan_, attempt, rank, console_, relay_));
  }
}

void Agent::supervise() {
  while (group_->running() > 0 && !abandoned_) wait_for_event();
}

void Agent::wait_for_event() { on_event(signals_.wait(deadline_, relay_.descriptor())); }

void Agent::on_event(const SignalQueue::Event& event) {
  switch (event.wakeup) {
    case SignalQueue::Wakeup::signal:
      return on_signal(event.signal_number);
    case SignalQueue::Wakeup::deadline:
      return on_deadline();
    case SignalQueue::Wakeup::input:
      return relay_.pump();
  }
}

void Agent::on_signal(int number) {
  if (number == SIGCHLD) {
    on_child_ended();
  } else if (!signals_.ends_job(number)) {
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

FailureRecord Agent::record(const Attempt& attempt, const Worker& worker) const {
  const std::string file = error_file(attempt, worker.local_rank);
  FailureRecord result;
  result.rank = worker.local_rank;
  result.local_rank = worker.local_rank;
  result.pid = worker.pid;
  result.program = plan_.program;
  result.status = worker.status;
  result.stopped = worker.stopped;
  result.host = host_name();
  result.time = worker.ended;
  result.error = error_content(file);
  result.message = message_of(result.error);
  result.error_file = error_file_text(file, !plan_.log_dir.empty());
  const auto kills = out_of_memory_kills();
  if (kills && memory_kills_before_) result.out_of_memory_kills = *kills - *memory_kills_before_;
  const LastWords words = last_words(plan_, attempt, worker.local_rank, relay_);
  result.log_file = words.file;
  result.last_lines = words.lines;
  return result;
}

void Agent::report_failure(const Attempt& attempt) {
  std::vector<FailureRecord> records{record(attempt, group_->workers()[*first_failure_])};
  for (std::size_t i = 0; i < group_->workers().size(); ++i) {
    if (i != *first_failure_) records.push_back(record(attempt, group_->workers()[i]));
  }
  const std::size_t cause = root_cause(records);
  cause_ = static_cast<std::size_t>(records[cause].local_rank);
  log_ << failure_report(records, cause) << std::flush;
}

int Agent::exit_code() const {
  // A cause that was stopped before it could end by itself has no exit code of its own.
  const Worker& cause = group_->workers()[cause_];
  return exit_code_of(*(cause.failed() ? cause : group_->workers()[*first_failure_]).status);
}

void Agent::tell_who_started_us(const Attempt& attempt) const {
  const std::string file = find_variable(environment_, "TORCHELASTIC_ERROR_FILE").value_or("");
  try {
    pass_on_error_file(error_content(error_file(attempt, group_->workers()[cause_].local_rank)), file,
                       exit_code());
  } catch (const Error& error) {
    log_ << std::string("lockstep run: the error is not passed on to TORCHELASTIC_ERROR_FILE: ") +
                error.what() + "\n"
         << std::flush;
  }
}

}  // namespace lockstep::launch
