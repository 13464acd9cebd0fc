#include "job.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

namespace lockstep::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

/// The beginning of a line of `rank`: "probe [rank 1]: ".
std::string prefix_of(const std::string& program, int rank) {
  return program + " [rank " + std::to_string(rank) + "]: ";
}

/// The rank that wrote the line, or -1.
int rank_of_line(const std::string& line, const std::string& program) {
  const std::string start = program + " [rank ";
  return line.starts_with(start) ? std::atoi(line.c_str() + start.size()) : -1;
}

}  // namespace

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::unique_ptr<LauncherProcess> start_job(const Words& program, int ranks, const Words& flags,
                                           const Environment& variables) {
  Words words{"run", "--nproc-per-node", std::to_string(ranks), "--shutdown-timeout", "10"};
  words.insert(words.end(), flags.begin(), flags.end());
  words.insert(words.end(), program.begin(), program.end());
  Environment environment{{"OMP_NUM_THREADS", "1"}};
  for (const auto& [name, value] : variables) environment[name] = value;
  return std::make_unique<LauncherProcess>(words, environment);
}

Finished run_job(const Words& program, int ranks, const Words& flags, const Environment& variables) {
  return start_job(program, ranks, flags, variables)->wait();
}

Finished run_probe(int ranks, const Words& words, const Words& flags, const Environment& variables) {
  Words program{LOCKSTEP_PROBE};
  program.insert(program.end(), words.begin(), words.end());
  return run_job(program, ranks, flags, variables);
}

std::unique_ptr<LauncherProcess> start_probe(const Words& words, const Environment& variables) {
  return std::make_unique<LauncherProcess>(words, variables, std::function<void()>(), LOCKSTEP_PROBE);
}

Environment by_hand(int rank, int size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"LOCAL_RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_WORLD_SIZE", std::to_string(size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)},
          {"OMP_NUM_THREADS", "1"}};
}

int free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool bound = bind(descriptor, generic, length) == 0 && getsockname(descriptor, generic, &length) == 0;
  close(descriptor);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int count_lines_with(const std::string& text, const std::string& part) {
  int count = 0;
  for (const auto& line : lines_of(text)) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

std::string error_of_rank(const Finished& job, int rank, const std::string& program) {
  const std::string start = prefix_of(program, rank) + "error: ";
  std::vector<std::string> found;
  for (const auto& line : lines_of(job.err)) {
    if (line.starts_with(start)) found.push_back(line.substr(start.size()));
  }
  EXPECT_EQ(found.size(), 1U) << "lines of rank " << rank << " in: " << job.err;
  return found.empty() ? "" : found.front();
}

AssertionResult is_readable(const Finished& job, const std::string& program) {
  std::map<int, int> lines_by_rank;
  for (const auto& line : lines_of(job.err)) {
    const int rank = rank_of_line(line, program);
    const bool of_launcher = line.starts_with("lockstep run: ") || line.starts_with("  ");
    if (rank < 0 && !of_launcher)
      return AssertionFailure() << "a stray line '" << line << "' in:\n" << job.err;
    if (rank >= 0 && ++lines_by_rank[rank] > 1)
      return AssertionFailure() << "several lines of a rank:\n" << job.err;
  }
  return AssertionSuccess();
}

AssertionResult blames(const Finished& job, int rank, const std::string& program) {
  const std::string wanted = "lockstep run: FAILED: rank " + std::to_string(rank) + " (";
  if (count_lines_with(job.err, wanted) != 1 || count_lines_with(job.err, "FAILED:") != 1) {
    return AssertionFailure() << "expected rank " << rank << " to be blamed once in:\n" << job.err;
  }
  return is_readable(job, program);
}

}  // namespace lockstep::testing
