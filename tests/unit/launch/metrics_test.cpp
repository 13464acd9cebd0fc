// The page of metrics, the server that serves it to good and bad clients, and the launcher's own.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <sstream>
#include <string>

#include "launcher_process.hpp"
#include "lockstep/core/error.hpp"
#include "metrics/job_metrics.hpp"
#include "metrics/metrics_server.hpp"
#include "net/socket.hpp"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RankStatus rank_status(int rank, const HeartbeatRecord& beat, const RankCounters& counters,
                       milliseconds still) {
  RankStatus status;
  status.rank = rank;
  status.beat = beat;
  status.counters = counters;
  status.still = still;
  return status;
}

/// Whether the page has that line.
bool has_line(const std::string& page, const std::string& line) {
  return ("\n" + page).find("\n" + line + "\n") != std::string::npos;
}

TEST(JobMetrics, ArePrometheusTextFormat) {
  JobMetrics metrics("a\"b\\c\nd", "node\xff", "1.2");
  const auto begin = net::Clock::now();
  EXPECT_TRUE(
      has_line(metrics.text(begin), R"(lockstep_ranks_alive{run_id="a\"b\\c\nd",host="node\\xff"} 0)"))
      << metrics.text(begin);
  metrics.begin_round({.round = 3, .restart_count = 2, .group_rank = 1, .first_rank = 4, .world_size = 6}, 2);
  const HeartbeatRecord works{.activity = Activity::working, .what = "forward", .step = 57};
  const HeartbeatRecord waits{.activity = Activity::waiting, .what = "all_reduce", .step = 56};
  const RankCounters waited{.waited = 2'500'000'000};
  metrics.count_recovery();
  auto first = rank_status(4, works, {.samples = 100}, milliseconds(250));
  metrics.see({first, rank_status(5, waits, waited, milliseconds(1500))}, begin);
  first.counters->samples = 300;
  RankStatus ended = rank_status(5, waits, waited, milliseconds(1500));
  metrics.see({first, ended}, begin + seconds(2));
  std::string page = metrics.text(begin + seconds(3));
  const std::string common = R"({run_id="a\"b\\c\nd",host="node\\xff",node="1")";
  for (const auto& [name, value] : std::map<std::string, std::string>{{"world_size", "6"},
                                                                      {"ranks", "2"},
                                                                      {"ranks_alive", "2"},
                                                                      {"rounds_total", "3"},
                                                                      {"restarts_total", "2"},
                                                                      {"recoveries_total", "1"}})
    EXPECT_TRUE(has_line(page, "lockstep_" + name + common + "} " + value)) << name << " in:\n" << page;
  const auto of_rank = [&](const std::string& name, int rank, const std::string& value) {
    const std::string line = "lockstep_rank_" + name + common + ",rank=\"" + std::to_string(rank) +
                             "\",local_rank=\"" + std::to_string(rank - 4) + "\"} " + value;
    EXPECT_TRUE(has_line(page, line)) << line << " in:\n" << page;
  };
  of_rank("heartbeat_age_seconds", 4, "1.25");
  of_rank("waiting_seconds", 4, "0");
  of_rank("waiting_seconds", 5, "2.5");
  of_rank("waited_seconds_total", 5, "2.5");
  of_rank("step", 4, "57");
  of_rank("samples_total", 4, "300");
  of_rank("samples_per_second", 4, "100");
  of_rank("up", 5, "1");

  ended.status = 9;
  metrics.see({first, ended}, begin + seconds(3));
  page = metrics.text(begin + seconds(3));
  of_rank("up", 5, "0");
  of_rank("waiting_seconds", 5, "0");
  EXPECT_TRUE(has_line(page, "lockstep_ranks_alive" + common + "} 1")) << page;

  // Each family is explained once, and its values follow.
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    } else if (!line.starts_with("# TYPE " + family + " ")) {
      EXPECT_TRUE(line.starts_with(family + "{")) << line;
    }
  }
  EXPECT_GE(families.size(), 14U);
}

/// A client of the server, in plain bytes.
class Client {
 public:
  explicit Client(const net::Address& server)
      : socket_(net::connect_to({server}, net::Clock::now() + seconds(20))) {}

  /// The server may have closed already.
  void send(const std::string& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const auto count = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count > 0) {
        sent += static_cast<std::size_t>(count);
      } else if (!net::would_block() || !net::await_ready(socket_.get(), POLLOUT, deadline_)) {
        return;
      }
    }
  }

  /// All until the server closes.
  std::string receive() const {
    std::string all;
    while (net::await_ready(socket_.get(), POLLIN, deadline_)) {
      char piece[4096];
      const auto count = ::recv(socket_.get(), piece, sizeof piece, 0);
      if (count <= 0) return all;
      all.append(piece, static_cast<std::size_t>(count));
    }
    ADD_FAILURE() << "the server does not close";
    return all;
  }

  std::string ask(const std::string& request) const {
    send(request);
    return receive();
  }

 private:
  net::FileDescriptor socket_;
  net::Deadline deadline_ = net::Clock::now() + seconds(20);
};

const std::string kScrape = "GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: text/plain\r\n\r\n";

std::unique_ptr<MetricsServer> server_of(const std::string& page, const MetricsServerLimits& limits = {}) {
  return std::make_unique<MetricsServer>(
      net::Address::loopback(0), [page] { return page; }, limits);
}

TEST(MetricsServer, AnswersAScrape) {
  const std::string page(300'000, 'x');
  const auto server = server_of(page);
  const std::string answer = Client(server->address()).ask(kScrape);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer.substr(0, 200);
  EXPECT_NE(answer.find("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos);
  EXPECT_NE(answer.find("\r\nContent-Length: 300000\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\n" + page));
  const std::string head = Client(server->address()).ask("HEAD /metrics?a=b HTTP/1.0\n\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n")) << head;
}

TEST(MetricsServer, RefusesWhatIsNoScrape) {
  const auto server = server_of("page");
  const auto status = [&](const std::string& request) {
    const std::string answer = Client(server->address()).ask(request);
    return answer.substr(0, answer.find("\r\n"));
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
            "HTTP/1.1 405 Method Not Allowed");
  for (const std::string nonsense : {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", " \n\n",
                                     "\x16\x03\x01\x02 \n\n", "GET /metrics SSH-2.0\r\n\r\n"})
    EXPECT_EQ(status(nonsense), "HTTP/1.1 400 Bad Request") << nonsense;
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\n" + std::string(100'000, 'a')),
            "HTTP/1.1 431 Request Header Fields Too Large");
  EXPECT_EQ(status(kScrape), "HTTP/1.1 200 OK") << "after all of these";
}

TEST(MetricsServer, IsNotHeldUpBySlowClients) {
  const auto server = server_of("page", {.most_connections = 4, .request_time = milliseconds(300)});
  const auto begin = std::chrono::steady_clock::now();
  const Client silent(server->address());
  const Client unfinished(server->address());
  unfinished.send("GET /metrics HTT");
  EXPECT_TRUE(Client(server->address()).ask(kScrape).ends_with("page"));
  EXPECT_EQ(silent.receive(), "");
  EXPECT_EQ(unfinished.receive(), "");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(290));
}

/// One who does not read the answer holds nobody up either, and is closed.
TEST(MetricsServer, ClosesTheOldestOfTooManyConnections) {
  const auto server =
      server_of(std::string(50'000'000, 'x'), {.most_connections = 3, .request_time = seconds(60)});
  const Client first(server->address());
  first.send(kScrape);
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < 3; ++i) others.push_back(std::make_unique<Client>(server->address()));
  const std::string cut = first.receive();
  EXPECT_LT(cut.size(), 50'000'000U);
  EXPECT_EQ(Client(server->address()).ask(kScrape).size() > 50'000'000U, true);
}

TEST(MetricsServer, SaysThatItsPortIsInUse) {
  const auto server = server_of("page");
  EXPECT_THROW(MetricsServer(server->address(), [] { return std::string(); }), net::AddressInUse);
}

TEST(MetricsPort, OfALauncherTellsWhatTheRanksDo) {
  const ScratchFolder folder;
  LauncherProcess job({"run", "--nproc-per-node=2", "--metrics-port=0", "--rdzv-id=seven",
                       "--shutdown-timeout=1", LOCKSTEP_BEATING_RANK, "0", folder.path()});
  await_number(folder.file("0"));
  await_number(folder.file("1"));
  const std::string notice = "metrics are at http://127.0.0.1:";
  ASSERT_TRUE(eventually([&] { return job.err().find(notice) != std::string::npos; })) << job.err();
  const int port = std::atoi(job.err().substr(job.err().find(notice) + notice.size()).c_str());
  const auto address = net::Address::loopback(static_cast<std::uint16_t>(port));
  std::string page;
  const auto matches = [&](const std::string& name, const std::string& value) {
    const auto at = page.find("\nlockstep_" + name + "{run_id=\"seven\",host=\"");
    const auto end = page.find('\n', at + 1);
    return at != std::string::npos && page.substr(at, end - at).ends_with(value);
  };
  EXPECT_TRUE(eventually([&] {
    page = Client(address).ask(kScrape);
    return matches("ranks_alive", "node=\"0\"} 2") &&
           page.find("rank=\"1\",local_rank=\"1\"}") != std::string::npos;
  })) << page;
  EXPECT_TRUE(matches("world_size", "} 2")) << page;
  EXPECT_TRUE(matches("restarts_total", "} 0")) << page;
  const auto waiting = page.find("\nlockstep_rank_waiting_seconds");
  const auto number_of = [&](const std::string& rank) {
    const std::string label = ",rank=\"" + rank + "\",local_rank=\"" + rank + "\"} ";
    return std::atof(page.c_str() + page.find(label, waiting) + label.size());
  };
  EXPECT_EQ(number_of("0"), 0) << page;
  EXPECT_GT(number_of("1"), 0) << page;
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().status, 128 + SIGTERM);
}

TEST(MetricsPort, IsRefusedBeforeAnythingStarts) {
  const Finished named = launch({"run", "--metrics-port=0", "--metrics-address=localhost", "true"});
  EXPECT_EQ(named.status, 2);
  EXPECT_NE(named.err.find("--metrics-address 'localhost': expected a numeric address"), std::string::npos)
      << named.err;
  const auto taken = server_of("page");
  const Finished busy =
      launch({"run", "--metrics-port=" + std::to_string(taken->address().port()), "echo", "started"});
  EXPECT_NE(busy.status, 0);
  EXPECT_EQ(busy.out, "");
  EXPECT_NE(busy.err.find(taken->address().text()), std::string::npos) << busy.err;
}

}  // namespace
}  // namespace lockstep::launch
