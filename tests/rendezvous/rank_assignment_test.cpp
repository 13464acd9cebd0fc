#include <gtest/gtest.h>

#include "rendezvous/rank_assignment.hpp"

namespace lockstep::launch {
namespace {

Node node(NodeId id, const std::string& host, int ranks = 1, const std::string& role = "default") {
  Node result;
  result.id = id;
  result.info.host = host;
  result.info.local_world_size = ranks;
  result.info.role = role;
  return result;
}

std::string hosts(const std::vector<Node*>& order) {
  std::string text;
  for (const Node* each : order) text += each->info.host + " ";
  return text;
}

TEST(RankAssignment, NumbersInHostNamesCountAsNumbers) {
  const std::pair<std::string, std::string> in_order[] = {
      {"node9", "node10"}, {"n1-rack2", "n1-rack10"}, {"a", "a1"}, {"a09", "a10"}, {"a01", "a1"}};
  for (const auto& [first, second] : in_order) {
    std::vector<Node> nodes = {node(1, second), node(2, first)};
    EXPECT_EQ(hosts(candidates(nodes, 2)), first + " " + second + " ");
  }
}

TEST(RankAssignment, CoordinatorFirstThenByHost) {
  std::vector<Node> nodes = {node(3, "n10"), node(2, "n9"), node(0, "n12")};
  EXPECT_EQ(hosts(candidates(nodes, 3)), "n12 n9 n10 ");
}

TEST(RankAssignment, GivenNodeRanksWin) {
  std::vector<Node> nodes = {node(0, "a"), node(1, "b"), node(2, "c")};
  nodes[0].info.node_rank = 2;
  nodes[1].info.node_rank = 0;
  nodes[2].info.node_rank = 1;
  EXPECT_EQ(hosts(candidates(nodes, 3)), "b c a ");
}

TEST(RankAssignment, SurvivorsKeepTheirOrderAndRanks) {
  std::vector<Node> nodes = {node(5, "a"), node(3, "z"), node(4, "y")};
  nodes[1].group_rank = 2;
  nodes[2].group_rank = 1;
  EXPECT_EQ(hosts(candidates(nodes, 3)), "y z a ");
  EXPECT_EQ(hosts(candidates(nodes, 2)), "y z ");
  nodes[2].drain_signal = 15;
  EXPECT_EQ(hosts(candidates(nodes, 3)), "z a ");
}

TEST(RankAssignment, RanksOfNodesAndRolesAreContiguous) {
  std::vector<Node> nodes = {node(0, "a", 2, "x"), node(1, "b", 3, "y"), node(2, "c", 1, "x")};
  const auto order = candidates(nodes, 3);
  const auto places = assign_ranks(order);
  EXPECT_EQ(places[1].first_rank, 2);
  EXPECT_EQ(places[2].first_rank, 5);
  EXPECT_EQ(places[2].first_role_rank, 2);
  EXPECT_EQ(places[0].role_world_size, 3);
  EXPECT_EQ(places[1].role_world_size, 3);
  EXPECT_EQ(places[0].world_size, 6);
  EXPECT_EQ(rank_map(order, places), "node 0 = a (ranks 0-1), node 1 = b (ranks 2-4), node 2 = c (rank 5)");
}

TEST(RankAssignment, LongListsAreShortened) {
  std::vector<std::string> items;
  for (int i = 0; i < 16; ++i) items.push_back(std::to_string(i));
  EXPECT_EQ(first_and_last(items), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15");
  for (int i = 16; i < 4000; ++i) items.push_back(std::to_string(i));
  EXPECT_EQ(first_and_last(items), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, (3984 more), 3999");
  EXPECT_EQ(first_and_last({}), "");
}

}  // namespace
}  // namespace lockstep::launch
