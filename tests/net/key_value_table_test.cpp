#include "net/store/key_value_table.hpp"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "net/store/memory_budget.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

class Table : public ::testing::Test {
 protected:
  std::string value(const std::string& key) const {
    const Value found = table.get(key);
    return found ? found->bytes : "(none)";
  }

  MemoryBudget budget{100'000};
  KeyValueTable table{budget};
};

TEST_F(Table, KeepsValues) {
  EXPECT_EQ(value("a"), "(none)");
  table.set("a", "1");
  table.set("a", std::string("x\0y", 3));
  EXPECT_EQ(value("a"), std::string("x\0y", 3));
  table.append("a", "z");
  table.append("b", "z");
  EXPECT_EQ(value("a"), std::string("x\0yz", 4));
  EXPECT_EQ(value("b"), "z");
  EXPECT_EQ(table.size(), 2U);
  EXPECT_TRUE(table.erase("a"));
  EXPECT_FALSE(table.erase("a"));
}

TEST_F(Table, AppendDoesNotChangeAPendingAnswer) {
  table.set("a", "1");
  const Value answer = table.get("a");
  table.append("a", std::string(1000, 'x'));
  table.append("a", "z");
  EXPECT_EQ(answer->bytes, "1");
  EXPECT_EQ(value("a"), "1" + std::string(1000, 'x') + "z");
}

TEST_F(Table, AddsToDecimalText) {
  EXPECT_EQ(table.add("n", 5), 5);
  EXPECT_EQ(table.add("n", -7), -2);
  EXPECT_EQ(value("n"), "-2");
  table.set("n", "9223372036854775807");
  EXPECT_EQ(table.add("n", 1), std::numeric_limits<std::int64_t>::min());
  for (const char* text : {" 7", "\n+7", "7 words"}) {
    table.set("t", text);
    EXPECT_EQ(table.add("t", 1), 8) << text;
  }
  for (const char* text : {"", "word", "+ 7", "99999999999999999999"}) {
    table.set("t", text);
    EXPECT_THROWS(table.add("t", 1), BadRequest, "no number");
    EXPECT_EQ(value("t"), text);
  }
}

TEST_F(Table, ComparesBeforeItSets) {
  EXPECT_EQ(table.compare_set("k", "old", "new"), nullptr);
  EXPECT_EQ(table.compare_set("k", "", "one")->bytes, "one");
  EXPECT_EQ(table.compare_set("k", "", "two")->bytes, "one");
  EXPECT_EQ(table.compare_set("k", "one", "two")->bytes, "two");
  EXPECT_EQ(value("k"), "two");
}

TEST_F(Table, QueuesAreSeparateFromKeys) {
  table.push("q", "1");
  table.push("q", "2");
  EXPECT_TRUE(table.contains("q"));
  EXPECT_EQ(table.length("q"), 2U);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_FALSE(table.erase("q"));
  EXPECT_EQ(table.pop("q")->bytes, "1");
  EXPECT_EQ(table.pop("q")->bytes, "2");
  EXPECT_EQ(table.pop("q"), nullptr);
  EXPECT_FALSE(table.contains("q"));
}

TEST_F(Table, WaitEndsOnceEveryKeyWasSet) {
  table.set("a", "1");
  EXPECT_TRUE(table.wait(1, {"a"}));
  EXPECT_TRUE(table.wait(1, {}));
  EXPECT_FALSE(table.wait(1, {"a", "b", "c", "c"}));
  table.set("b", "1");
  table.erase("b");
  EXPECT_TRUE(table.take_ready().empty());
  table.add("c", 1);
  EXPECT_EQ(table.take_ready(), std::vector<WaiterId>{1});
  table.set("c", "2");
  EXPECT_TRUE(table.take_ready().empty());
}

TEST_F(Table, ACancelledWaitNeverEnds) {
  EXPECT_FALSE(table.wait(1, {"a", "b"}));
  table.cancel(1);
  table.set("a", "1");
  table.set("b", "1");
  EXPECT_TRUE(table.take_ready().empty());
  EXPECT_FALSE(table.wait(1, {"c"}));
  table.set("c", "1");
  table.cancel(1);
  EXPECT_TRUE(table.take_ready().empty()) << "cancelled before it was answered";
  EXPECT_FALSE(table.wait(1, {"x"}));
  EXPECT_FALSE(table.wait(1, {"y"}));
  table.set("x", "1");
  EXPECT_TRUE(table.take_ready().empty());
  table.set("y", "1");
  EXPECT_EQ(table.take_ready(), std::vector<WaiterId>{1});
}

TEST_F(Table, ASetEndsEveryWaitAndAPushEndsOne) {
  EXPECT_FALSE(table.wait(1, {"k"}));
  EXPECT_FALSE(table.wait(2, {"k"}));
  table.push("k", "1");
  EXPECT_EQ(table.take_ready(), std::vector<WaiterId>{1});
  EXPECT_TRUE(table.wait(1, {"k"}));
  table.set("k", "1");
  EXPECT_EQ(table.take_ready(), std::vector<WaiterId>{2});
}

TEST_F(Table, ClearKeepsAPrefix) {
  for (const char* key : {"keep/a", "keep/b", "drop", "kee"}) table.set(key, "1");
  table.push("queue", "1");
  table.push("keep/queue", "1");
  table.clear("keep/");
  auto keys = table.keys();
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(keys, (std::vector<std::string_view>{"keep/a", "keep/b"}));
  EXPECT_EQ(table.length("queue"), 0U);
  EXPECT_EQ(table.length("keep/queue"), 1U);
}

TEST_F(Table, RemembersChangesUnderWatchedPrefixes) {
  table.watch("job/");
  table.set("other", "1");
  EXPECT_FALSE(table.has_changes());
  table.set("job/b", "1");
  table.add("job/a", 1);
  table.add("job/a", 1);
  table.set("job/gone", "1");
  table.erase("job/gone");
  EXPECT_EQ(table.take_changes(), (std::vector<std::string>{"job/a", "job/b"}));
  EXPECT_TRUE(table.take_changes().empty());
}

TEST_F(Table, ExceededBudgetChangesNothing) {
  table.set("a", std::string(60'000, 'x'));
  const std::size_t used = budget.used();
  EXPECT_THROW(table.set("b", std::string(60'000, 'x')), StoreFull);
  EXPECT_THROW(table.append("a", std::string(10'000, 'x')), StoreFull);
  EXPECT_THROW(table.push("q", std::string(60'000, 'x')), StoreFull);
  EXPECT_THROW(table.wait(1, {std::string(60'000, 'k')}), StoreFull);
  EXPECT_EQ(budget.used(), used);
  EXPECT_EQ(value("a"), std::string(60'000, 'x'));
  EXPECT_FALSE(table.contains("q"));
  table.erase("a");
  EXPECT_EQ(budget.used(), 0U);
  table.set("b", std::string(60'000, 'x'));
}

TEST_F(Table, ReturnsAllReservedMemory) {
  const Value held = (table.set("a", "1"), table.get("a"));
  table.push("q", "1");
  table.wait(1, {"x", "y"});
  table.clear("nothing");
  table.pop("q");
  table.cancel(1);
  EXPECT_GT(budget.used(), 0U);  // The value that is still held.
  const_cast<Value&>(held).reset();
  EXPECT_EQ(budget.used(), 0U);
}

/// The budget is of memory, not of bytes: many small objects cost more than what they contain.
TEST(TableMemory, IsCoveredByTheBudget) {
  constexpr int kObjects = 20'000;
  const auto allocated = [] { return mallinfo2().uordblks; };
  for (const bool in_queues : {false, true}) {
    MemoryBudget budget(100'000'000);
    KeyValueTable table(budget);
    const auto before = allocated();
    for (int i = 0; i < kObjects; ++i) {
      const std::string name = "name " + std::to_string(i);
      in_queues ? table.push(name, "x") : table.set(name, "x");
    }
    // A sanitizer's allocator reports nothing: the difference is 0 there.
    EXPECT_LE(allocated() - before, budget.used()) << (in_queues ? "queues" : "values");
  }
}

}  // namespace
}  // namespace lockstep::net
