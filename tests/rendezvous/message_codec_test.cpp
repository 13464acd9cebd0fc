// Messages between launchers as JSON: what one side writes the other reads, and nothing else passes.

#include "rendezvous/messages.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "lockstep/core/error.hpp"
#include "rendezvous/message_connection.hpp"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

template <class Message>
Message from_node(const Message& message) {
  return std::get<Message>(*decode<NodeMessage>(encode(NodeMessage(message))));
}
template <class Message>
Message from_coordinator(const Message& message) {
  return std::get<Message>(*decode<CoordinatorMessage>(encode(CoordinatorMessage(message))));
}

TEST(MessageCodec, NodeInfoSurvives) {
  NodeInfo node{.run_id = "job", .host = "a", .pid = 77, .node_rank = 3, .min_nodes = 2, .max_nodes = 4};
  node.local_world_size = 8;
  node.role = "trainer";
  node.program = "train.py";
  node.arguments = "--lr 1";
  node.own_store = net::HostPort{"a", 4000};
  const NodeInfo read = from_node(node);
  EXPECT_EQ(describe(read, read.node_rank), "node 3 (host a, process 77)");
  EXPECT_EQ(read.run_id, "job");
  EXPECT_EQ(read.min_nodes, 2);
  EXPECT_EQ(read.max_nodes, 4);
  EXPECT_EQ(read.local_world_size, 8);
  EXPECT_EQ(read.role, "trainer");
  EXPECT_EQ(read.program, "train.py");
  EXPECT_EQ(read.arguments, "--lr 1");
  EXPECT_EQ(read.own_store->text(), "a:4000");
  ASSERT_TRUE(read.clock_ahead);
  EXPECT_LT(std::chrono::abs(*read.clock_ahead), 5min);
}

TEST(MessageCodec, AnotherVersionIsReadUpToItsNumber) {
  const auto read = decode<NodeMessage>(R"({"type":"join","version":9,"run_id":"job","host":"b"})");
  EXPECT_EQ(std::get<NodeInfo>(*read).version, 9);
}

TEST(MessageCodec, AssignmentsAndStopsSurvive) {
  Assignment place{.round = 2, .restart_count = 1, .max_restarts = 3, .group_rank = 1};
  place.world_size = 6;
  place.own_store = net::HostPort{"a", 4000};
  place.max_recoveries = 5;
  place.replaces = {{.round = 2, .rank = 4, .process = 1, .replaces = "1:2"}, {.round = 2, .rank = 5}};
  const Assignment read = from_coordinator(place);
  EXPECT_EQ(read.round, 2);
  EXPECT_EQ(read.restart_count, 1);
  EXPECT_EQ(read.max_restarts, 3);
  EXPECT_EQ(read.group_rank, 1);
  EXPECT_EQ(read.world_size, 6);
  EXPECT_EQ(read.own_store->text(), "a:4000");
  EXPECT_EQ(read.max_recoveries, 5);
  ASSERT_EQ(read.replaces.size(), 2U);
  EXPECT_EQ(read.replaces[0].rank, 4);
  EXPECT_EQ(read.replaces[0].replaces, "1:2");
  EXPECT_EQ(read.replaces[1].rank, 5);
  EXPECT_EQ(from_coordinator(NotReplaced{2, 3}).rank, 3);
  const StopRound stop = from_coordinator(StopRound{.round = 2, .signal = 15, .at_once = true});
  EXPECT_EQ(stop.signal, 15);
  EXPECT_TRUE(stop.at_once);
  EXPECT_FALSE(stop.stacks_first);
  const HangFound hang = from_coordinator(
      HangFound{.round = 2, .text = "t", .ends_job = true, .limit = 20s, .rank = {}, .stuck = {1, 2}});
  EXPECT_EQ(hang.limit, 20s);
  EXPECT_EQ(hang.stuck, (std::vector<int>{1, 2}));
  const Finish finish = from_coordinator(Finish{3, {{"message", "m"}}});
  EXPECT_EQ(finish.exit_code, 3);
  EXPECT_EQ(finish.error["message"], "m");
  const VerifyPeerUid request = from_coordinator(
      VerifyPeerUid{7, *net::Address::numeric("10.0.0.1", 5), *net::Address::numeric("::1", 6)});
  EXPECT_EQ(request.client.text(), "10.0.0.1:5");
  EXPECT_EQ(request.server.text(), "[::1]:6");
}

TEST(MessageCodec, StatusOfRanksSurvives) {
  RankStatus status;
  status.rank = 3;
  status.process = "node1, pid 7";
  status.beat = HeartbeatRecord{.activity = Activity::working, .what = "forward", .number = 77, .step = 5};
  status.still = 1234ms;
  status.status = 256;
  status.process_state = 'T';
  RankStatus silent;
  silent.rank = 4;
  const auto read = from_node(StatusReport{1, {status, silent}}).ranks;
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].process, status.process);
  EXPECT_EQ(read[0].still, 1234ms);
  EXPECT_EQ(read[0].status, 256);
  EXPECT_EQ(read[0].process_state, 'T');
  EXPECT_EQ(read[0].beat->text(), status.beat->text());
  EXPECT_EQ(read[0].beat->number, 77U);
  EXPECT_EQ(read[0].beat->step, 5U);
  EXPECT_FALSE(read[1].beat);
  EXPECT_FALSE(read[1].status);
}

TEST(MessageCodec, FailuresOfManyRanksFitIntoAMessage) {
  RoundEnded ended{.round = 1, .step = 9};
  for (int rank = 0; rank < 200; ++rank) {
    ProcessFailure failure;
    failure.rank = rank;
    failure.message = "why " + std::to_string(rank);
    failure.last_lines = std::string(8192, 'x');
    ended.failures.push_back(failure);
  }
  EXPECT_LE(encode(NodeMessage(ended)).size(), kLongestMessage);
  const RoundEnded read = from_node(ended);
  EXPECT_EQ(read.step, 9U);
  ASSERT_EQ(read.failures.size(), 200U);
  EXPECT_EQ(read.failures.front().last_lines.size(), 8192U) << "the first failed first";
  EXPECT_EQ(read.failures.back().last_lines, "");
}

TEST(MessageCodec, LongTextsAreCutBetweenCharacters) {
  // One byte before letters of two, so that a limit at an even place lies inside of one.
  std::string text = "x";
  while (text.size() < kLongestMessage) text += "\u00e4";
  const std::string read = from_coordinator(Notice{text}).text;
  EXPECT_LT(read.size(), kLongestMessage);
  ASSERT_TRUE(read.ends_with(" ..."));
  EXPECT_TRUE(text.starts_with(read.substr(0, read.size() - 4))) << "no letter is cut in two";
}

TEST(MessageCodec, MalformedMessagesAreRefused) {
  for (const char* text :
       {"", "7", "[]", R"({"type":"failed","round":"one"})",
        R"({"type":"failed","round":1,"failure":{"no":1}})", R"({"type":"ended","round":1,"ok":7})",
        R"({"type":"ended","round":1,"failures":[7]})", R"({"type":"draining","signal":0})",
        R"({"type":"stacks","for":"me","text":"x"})",
        R"({"type":"join","version":3,"run_id":"job","host":7})", R"({"type":"peer_uid","id":-1})",
        R"({"type":"status","round":1,"ranks":7})", R"({"type":"status","round":1,"ranks":[1]})"})
    EXPECT_THROW(decode<NodeMessage>(text), DataError) << text;
  for (const char* text : {R"({"type":"start","round":0})", R"({"type":"finish"})",
                           R"({"type":"hang","round":1,"text":"t","limit":1,"rank":1,"stuck":["a"]})"})
    EXPECT_THROW(decode<CoordinatorMessage>(text), DataError) << text;
}

TEST(MessageCodec, MalformedStatusIsRefused) {
  const std::string status =
      R"("rank":1,"process":"x","still":5,"process_state":83,"beat":{"activity":1,"what":"w","number":1,"step":1})";
  const auto read = [](const std::string& rank) {
    return decode<NodeMessage>(R"({"type":"status","round":1,"ranks":[{)" + rank + "}]}");
  };
  EXPECT_EQ(std::get<StatusReport>(*read(status)).ranks.size(), 1U);
  const std::pair<std::string, std::string> mistakes[] = {{R"("process":"x",)", ""},
                                                          {R"("rank":1)", R"("rank":-1)"},
                                                          {R"("still":5)", R"("still":-5)"},
                                                          {R"("still":5)", R"("still":1e300)"},
                                                          {R"("activity":1)", R"("activity":9)"},
                                                          {R"("process":"x")", R"("process":2)"},
                                                          {R"("rank":1)", R"("rank":1,"status":"0")"},
                                                          {R"("process_state":83,)", ""},
                                                          {R"("process_state":83)", R"("process_state":300)"},
                                                          {R"("process_state":83)", R"("process_state":"S")"},
                                                          {R"("number":1)", R"("number":-1)"}};
  for (const auto& [right, wrong] : mistakes) {
    std::string broken = status;
    broken.replace(broken.find(right), right.size(), wrong);
    EXPECT_THROW(read(broken), DataError) << broken;
  }
}

TEST(MessageCodec, UnknownTypesAreIgnored) {
  EXPECT_FALSE(decode<NodeMessage>(R"({"type":"of a later version"})"));
  EXPECT_FALSE(decode<CoordinatorMessage>(R"({"no":"type"})"));
}

TEST(MessageConnection, ClosesAPeerThatViolatesTheProtocol) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  MessageConnection here{net::FileDescriptor(ends[0])};
  MessageConnection there{net::FileDescriptor(ends[1])};
  there.send(Ping{});
  there.send(Draining{0});
  there.send(Ping{});
  const auto messages = here.receive<NodeMessage>();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Ping>(messages.front()));
  EXPECT_TRUE(here.closed());
  EXPECT_NE(here.why_closed().find("has no valid 'signal'"), std::string::npos) << here.why_closed();
}

}  // namespace
}  // namespace lockstep::launch
