#include "net/store/request_parser.hpp"

#include <gtest/gtest.h>

#include "net/store/memory_budget.hpp"
#include "support/throws.hpp"

namespace lockstep::net {
namespace {

std::vector<Request> parse(std::string_view bytes, std::size_t piece, MemoryBudget& budget) {
  RequestParser parser(budget);
  std::vector<Request> requests;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    std::string_view part = bytes.substr(at, piece);
    while (!part.empty()) {
      if (auto request = parser.feed(part)) requests.push_back(std::move(*request));
    }
  }
  EXPECT_FALSE(parser.is_inside_request());
  return requests;
}

/// Every request that there is, one behind the other.
std::string all_requests() {
  Writer writer;
  writer.type(QueryType::set).text("k").text("value");
  writer.type(QueryType::compare_set).text("k").text("").text("desired");
  writer.type(QueryType::get).text("k");
  writer.type(QueryType::add).text("k").number(7);
  writer.type(QueryType::check).number(2).text("a").text("");
  writer.type(QueryType::wait).number(0);
  writer.type(QueryType::count_keys);
  writer.type(QueryType::delete_key).text("k");
  writer.type(QueryType::append).text("k").text(std::string(100'000, 'x'));
  writer.type(QueryType::multi_get).number(1).text("a");
  writer.type(QueryType::multi_set).number(2).text("a").text("1").text("b").text("2");
  writer.type(QueryType::cancel_wait);
  std::string bytes = writer.bytes() + static_cast<char>(QueryType::ping) + "nonc";
  Writer rest;
  rest.type(QueryType::queue_push).text("q").text("v");
  rest.type(QueryType::queue_pop).text("q");
  rest.type(QueryType::queue_length).text("q");
  rest.type(QueryType::list_keys);
  return bytes + rest.bytes();
}

TEST(RequestParser, ReadsEveryRequestInPiecesOfAnySize) {
  for (const std::size_t piece : {1, 2, 3, 7, 8, 9, 64, 1000, 1 << 20}) {
    MemoryBudget budget(1 << 20);
    const auto requests = parse(all_requests(), piece, budget);
    ASSERT_EQ(requests.size(), 17U) << piece;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(static_cast<std::size_t>(requests[i].type), i + 1);
    }
    EXPECT_EQ(requests[0].strings, (std::vector<std::string>{"k", "value"}));
    EXPECT_EQ(requests[1].strings, (std::vector<std::string>{"k", "", "desired"}));
    EXPECT_EQ(requests[3].number, 7U);
    EXPECT_EQ(requests[4].strings, (std::vector<std::string>{"a", ""}));
    EXPECT_TRUE(requests[5].strings.empty());
    EXPECT_EQ(requests[8].strings[1], std::string(100'000, 'x'));
    EXPECT_EQ(requests[10].strings, (std::vector<std::string>{"a", "1", "b", "2"}));
    EXPECT_EQ(requests[12].number, 0x636e6f6eU);
    EXPECT_EQ(budget.used(), 0U);
  }
}

TEST(RequestParser, RefusesInvalidRequests) {
  for (int type = 0; type < 256; ++type) {
    if (type >= 1 && type < kQueryTypes) continue;
    MemoryBudget budget(1000);
    RequestParser parser(budget);
    const char byte = static_cast<char>(type);
    std::string_view bytes(&byte, 1);
    EXPECT_THROWS(parser.feed(bytes), BadRequest, "unknown request " + std::to_string(type));
  }
}

TEST(RequestParser, RefusesLongLengthsWithoutMemory) {
  for (const std::uint64_t length :
       {kLongestKey + 1, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    for (int type = 1; type < kQueryTypes; ++type) {
      const std::string start = Writer().type(static_cast<QueryType>(type)).number(length).bytes();
      MemoryBudget budget(100);
      RequestParser parser(budget);
      std::string_view bytes = start;
      try {
        parser.feed(bytes);
        const bool may_have_so_many = length <= kMostKeys;
        const bool has_no_key = start.size() != 9 || type == 7 || type == 12 || type == 13 || type == 17;
        EXPECT_TRUE(may_have_so_many || has_no_key) << type << " " << length;
      } catch (const BadRequest&) {
      }
      EXPECT_LE(budget.used(), 100U);
    }
  }
}

TEST(RequestParser, AcceptsTheLongestAllowed) {
  MemoryBudget budget(64 << 20);
  Writer writer;
  writer.type(QueryType::set).text(std::string(kLongestKey, 'k')).text(std::string(kLongestValue, 'v'));
  EXPECT_EQ(parse(writer.bytes(), 65536, budget).size(), 1U);
  Writer longer;
  longer.type(QueryType::set).text("k").number(kLongestValue + 1);
  EXPECT_THROW(parse(longer.bytes(), 65536, budget), BadRequest);
  Writer many;
  many.type(QueryType::check).number(kMostKeys + 1);
  EXPECT_THROW(parse(many.bytes(), 65536, budget), BadRequest);
}

TEST(RequestParser, ReservesReceivedBytesNotAnnouncedOnes) {
  MemoryBudget budget(20'000);
  RequestParser parser(budget);
  const std::string start = Writer().type(QueryType::set).text("k").number(kLongestValue).bytes() + "12345";
  std::string_view bytes = start;
  EXPECT_FALSE(parser.feed(bytes));
  EXPECT_TRUE(parser.is_inside_request());
  EXPECT_LT(budget.used(), 1000U);
  const std::string more(30'000, 'x');
  bytes = more;
  EXPECT_THROW(parser.feed(bytes), StoreFull);
}

TEST(RequestParser, ManySmallKeysAreReserved) {
  MemoryBudget budget(100'000);
  RequestParser parser(budget);
  std::string bytes = Writer().type(QueryType::wait).number(kMostKeys).bytes();
  for (int i = 0; i < 10'000; ++i) bytes += wire_number(0);
  std::string_view view = bytes;
  EXPECT_THROW(parser.feed(view), StoreFull);
}

}  // namespace
}  // namespace lockstep::net
