#include "output/worker_output.hpp"

#include <filesystem>

#include "output/line_prefix.hpp"

namespace lockstep::launch {
namespace {

/// The folder of one rank's files.
std::filesystem::path folder_of(const Attempt& attempt, int local_rank) {
  return std::filesystem::path(error_file(attempt, local_rank)).parent_path();
}

/// "stdout" or "stderr".
std::string name_of(int number) { return number == STDOUT_FILENO ? "stdout" : "stderr"; }

/// One rank's streams are opened.
class Opening {
 public:
  Opening(const LaunchPlan& plan, const Attempt& attempt, int local_rank, OutputRelay& relay)
      : plan_(plan), attempt_(attempt), local_rank_(local_rank), relay_(relay) {}

  net::FileDescriptor open(int number, Sink sink) const {
    if (sink == Sink::console) return {};
    if (sink == Sink::nothing) return open_log("/dev/null");
    // A file that is to stay small is written by the launcher.
    if (sink == Sink::file && plan_.log_max_bytes == 0) return open_log(log_path(number));
    return relay_.open(stream(number, sink));
  }

 private:
  std::string log_path(int number) const {
    return folder_of(attempt_, local_rank_) / (name_of(number) + ".log");
  }

  RelayedStream stream(int number, Sink sink) const {
    RelayedStream stream;
    stream.local_rank = local_rank_;
    stream.number = number;
    stream.shown = sink == Sink::relay;
    stream.prefix =
        line_prefix(plan_.line_prefix, plan_.role, attempt_.place.first_rank + local_rank_, local_rank_);
    stream.painted_prefix = relay_.console().painted(stream.prefix, local_rank_, number);
    if (!plan_.log_dir.empty()) stream.copy.emplace(log_path(number), plan_.log_max_bytes);
    stream.filters = number == STDOUT_FILENO ? plan_.out_filters : plan_.err_filters;
    if (stream.shown && !stream.filters.empty() && !plan_.log_dir.empty()) {
      // All ranks append to one file, in whole lines.
      const auto folder = folder_of(attempt_, local_rank_).parent_path();
      stream.filtered.emplace(folder / ("filtered_" + name_of(number) + ".log"), 0);
    }
    return stream;
  }

  const LaunchPlan& plan_;
  const Attempt& attempt_;
  const int local_rank_;
  OutputRelay& relay_;
};

}  // namespace

void WorkerOutput::apply() const noexcept {
  if (out) dup2(out.get(), STDOUT_FILENO);
  if (err) dup2(err.get(), STDERR_FILENO);
}

WorkerOutput open_output(const LaunchPlan& plan, const Attempt& attempt, int local_rank, OutputRelay& relay) {
  const RankOutput& sinks = plan.outputs[static_cast<std::size_t>(local_rank)];
  const Opening opening(plan, attempt, local_rank, relay);
  return {opening.open(STDOUT_FILENO, sinks.out), opening.open(STDERR_FILENO, sinks.err)};
}

LastWords last_words(const LaunchPlan& plan, const Attempt& attempt, int local_rank,
                     const OutputRelay& relay) {
  const Sink sink = plan.outputs[static_cast<std::size_t>(local_rank)].err;
  if (sink == Sink::console || sink == Sink::nothing) return {};
  LastWords words;
  if (!plan.log_dir.empty()) words.file = folder_of(attempt, local_rank) / "stderr.log";
  const bool direct = sink == Sink::file && plan.log_max_bytes == 0;
  words.lines =
      direct ? last_lines(words.file, plan.report_lines) : relay.last_lines(local_rank, plan.report_lines);
  return words;
}

}  // namespace lockstep::launch
