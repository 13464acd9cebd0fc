#include "agent/worker_output.hpp"

#include <filesystem>

namespace lockstep::launch {
namespace {

/// The folder of one rank's files.
std::filesystem::path folder_of(const WorkerSpec& spec, int local_rank) {
  return std::filesystem::path(error_file(spec, local_rank)).parent_path();
}

/// "stdout" or "stderr".
std::string name_of(int number) { return number == STDOUT_FILENO ? "stdout" : "stderr"; }

/// One rank's streams are opened.
class Opening {
 public:
  Opening(const LaunchConfig& config, const WorkerSpec& spec, int local_rank, LogForwarder& forwarder)
      : config_(config), spec_(spec), local_rank_(local_rank), forwarder_(forwarder) {}

  net::FileDescriptor open(int number, Sink sink) const {
    if (sink == Sink::console) return {};
    if (sink == Sink::nothing) return open_log("/dev/null");
    // A file that is to stay small is written by the launcher.
    if (sink == Sink::file && config_.log_max_bytes == 0) return open_log(log_path(number));
    return forwarder_.open(stream(number, sink));
  }

 private:
  std::string log_path(int number) const {
    return folder_of(spec_, local_rank_) / (name_of(number) + ".log");
  }

  ForwardedStream stream(int number, Sink sink) const {
    ForwardedStream stream;
    stream.local_rank = local_rank_;
    stream.number = number;
    stream.shown = sink == Sink::forward;
    stream.prefix =
        line_prefix(config_.line_prefix, config_.role, spec_.place.first_rank + local_rank_, local_rank_);
    stream.painted_prefix = forwarder_.console().painted(stream.prefix, local_rank_, number);
    if (!config_.log_dir.empty()) stream.copy.emplace(log_path(number), config_.log_max_bytes);
    stream.filters = number == STDOUT_FILENO ? config_.out_filters : config_.err_filters;
    if (stream.shown && !stream.filters.empty() && !config_.log_dir.empty()) {
      // All ranks append to one file, in whole lines.
      const auto folder = folder_of(spec_, local_rank_).parent_path();
      stream.filtered.emplace(folder / ("filtered_" + name_of(number) + ".log"), 0);
    }
    return stream;
  }

  const LaunchConfig& config_;
  const WorkerSpec& spec_;
  const int local_rank_;
  LogForwarder& forwarder_;
};

}  // namespace

WorkerOutput open_output(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                         LogForwarder& forwarder) {
  const RankOutput& sinks = config.outputs[static_cast<std::size_t>(local_rank)];
  const Opening opening(config, spec, local_rank, forwarder);
  return {opening.open(STDOUT_FILENO, sinks.out), opening.open(STDERR_FILENO, sinks.err)};
}

StderrTail stderr_tail(const LaunchConfig& config, const WorkerSpec& spec, int local_rank,
                       const LogForwarder& forwarder) {
  const Sink sink = config.outputs[static_cast<std::size_t>(local_rank)].err;
  if (sink == Sink::console || sink == Sink::nothing) return {};
  StderrTail words;
  if (!config.log_dir.empty()) words.file = folder_of(spec, local_rank) / "stderr.log";
  const bool direct = sink == Sink::file && config.log_max_bytes == 0;
  words.lines = direct ? last_lines(words.file, config.report_lines)
                       : forwarder.last_lines(local_rank, config.report_lines);
  return words;
}

}  // namespace lockstep::launch
