// Every collective with every dtype, reduction and size, in worlds of one to five ranks of one host and of
// several; and long random sequences of them. Thinned, unless LOCKSTEP_LONG_TESTS is set (minutes).

#include <gtest/gtest.h>

#include <random>

#include "lockstep/core/environment.hpp"
#include "shm/played_hosts.hpp"
#include "shm/values.hpp"

namespace lockstep::shm {
namespace {

using namespace testing;

bool is_long() { return find_variable(process_environment(), "LOCKSTEP_LONG_TESTS").has_value(); }

/// What a rank contributes repeats itself after so many elements (values.hpp).
constexpr std::size_t kPeriod = 120;
constexpr std::size_t kPage = 4096;

/// A message that begins a few elements before a page does.
class Message {
 public:
  Message(Elements elements, const Values& period) : elements_(elements) {
    memory_.resize(elements.bytes() + 2 * kPage);
    Values block = period;
    const std::size_t step = kPeriod * size_of(elements.dtype);
    for (std::size_t done = 0; done < elements.bytes(); done += step)
      std::memcpy(data() + done, block.data(), std::min(step, elements.bytes() - done));
  }

  Message(Message&&) noexcept = default;

  std::byte* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (kPage - address % kPage) + kPage - 3 * size_of(elements_.dtype) % kPage;
  }
  bool holds(const Values& period) { return Message(elements_, period).bytes() == bytes(); }
  std::string_view bytes() { return {reinterpret_cast<const char*>(data()), elements_.bytes()}; }

 private:
  Elements elements_;
  std::vector<std::byte> memory_;
};

/// Not copied: a copy would lie otherwise to its page.
std::vector<Message> messages(int count, Elements elements, const Values& period) {
  std::vector<Message> list;
  for (int i = 0; i < count; ++i) list.emplace_back(elements, period);
  return list;
}

struct Kind {
  Dtype dtype;
  Reduction reduction;
};

Values given(Kind kind, int rank) {
  return make_values(kind.dtype, kPeriod,
                     [&](std::size_t i) { return contribution(kind.dtype, kind.reduction, i, rank); });
}
Values wanted(Kind kind, int ranks) {
  return make_values(kind.dtype, kPeriod,
                     [&](std::size_t i) { return expected(kind.dtype, kind.reduction, i, ranks); });
}

/// A rank's view of its world.
struct Rank {
  Transport& transport;
  int rank;
  int size;
  Group* group = nullptr;  // Null in a world of several hosts, whose other operations are not carried here.
};

void reduces(const Rank& self, Kind kind, std::size_t count, int root) {
  const Elements elements{count, kind.dtype};
  const Values own = given(kind, self.rank), result = wanted(kind, self.size);
  Message all(elements, own), at_root(elements, own);
  self.transport.all_reduce(all.data(), elements, kind.reduction);
  EXPECT_TRUE(all.holds(result)) << "all_reduce";
  self.transport.reduce(at_root.data(), elements, kind.reduction, root);
  EXPECT_TRUE(at_root.holds(self.rank == root ? result : own)) << "reduce";
  auto inputs = messages(self.size, elements, own);
  std::vector<void*> places;
  for (auto& input : inputs) places.push_back(input.data());
  Message part(elements, own);
  self.transport.reduce_scatter(places, part.data(), elements, kind.reduction);
  EXPECT_TRUE(part.holds(result)) << "reduce_scatter";
}

void moves(const Rank& self, Dtype dtype, std::size_t count, int root) {
  const Kind kind{dtype, Reduction::sum};
  const Elements elements{count, dtype};
  Message sent(elements, given(kind, self.rank));
  auto all = messages(self.size, elements, given(kind, 0));
  std::vector<void*> places;
  for (auto& message : all) places.push_back(message.data());
  self.transport.all_gather(sent.data(), places, elements);
  for (int r = 0; r < self.size; ++r)
    EXPECT_TRUE(all[static_cast<std::size_t>(r)].holds(given(kind, r))) << "all_gather";
  self.transport.broadcast(sent.data(), elements, root);
  EXPECT_TRUE(sent.holds(given(kind, root))) << "broadcast";
}

std::vector<Part> parts_of(std::vector<Message>& list, std::size_t count) {
  std::vector<Part> parts;
  for (auto& message : list) parts.push_back({message.data(), count});
  return parts;
}

/// What goes from one rank to another in an operation for which that matters.
Values addressed(Dtype dtype, int from, int to) { return given({dtype, Reduction::sum}, from + 2 * to); }

void gathers_and_scatters(const Rank& self, Dtype dtype, std::size_t count, int root) {
  const Elements elements{count, dtype};
  StepSync& sync = self.group->step_sync();
  Message own(elements, addressed(dtype, self.rank, root));
  auto all = messages(self.rank == root ? self.size : 0, elements, addressed(dtype, 0, 1));
  std::vector<void*> places;
  for (auto& message : all) places.push_back(message.data());
  gather(sync, own.data(), places, elements, root);
  for (int r = 0; r < static_cast<int>(all.size()); ++r)
    EXPECT_TRUE(all[static_cast<std::size_t>(r)].holds(addressed(dtype, r, root))) << "gather";
  Message back(elements, addressed(dtype, 0, 1));
  scatter(sync, {places.data(), places.size()}, back.data(), elements, root);
  EXPECT_TRUE(back.bytes() == own.bytes()) << "scatter";
}

void exchanges(const Rank& self, Dtype dtype, std::size_t count) {
  const Elements elements{count, dtype};
  std::vector<Message> sent, received = messages(self.size, elements, addressed(dtype, 0, 1));
  for (int r = 0; r < self.size; ++r) sent.emplace_back(elements, addressed(dtype, self.rank, r));
  all_to_all(self.group->step_sync(), parts_of(sent, count), parts_of(received, count), dtype);
  for (int r = 0; r < self.size; ++r)
    EXPECT_TRUE(received[static_cast<std::size_t>(r)].holds(addressed(dtype, r, self.rank))) << "all_to_all";
}

/// To everybody, and from everybody in the order in which it comes.
void messages_to_all(const Rank& self, Dtype dtype, std::size_t count) {
  const Elements elements{count, dtype};
  P2PQueue& p2p_queue = self.group->p2p_queue();
  for (int r = 0; r < self.size; ++r) {
    Message message(elements, addressed(dtype, self.rank, r));
    if (r != self.rank) p2p_queue.send(r, 7, message.data(), elements);
  }
  for (int i = 1; i < self.size; ++i) {
    Message message(elements, addressed(dtype, 0, 1));
    const int from = p2p_queue.wait(p2p_queue.receive({P2PQueue::kAnySource, 7, message.data(), elements}));
    EXPECT_TRUE(message.holds(addressed(dtype, from, self.rank))) << "recv";
  }
  barrier(self.group->step_sync());  // Nobody's next messages come before these have been received.
}

void passes_on(const Rank& self, Dtype dtype, std::size_t count, int root) {
  if (self.group == nullptr) return;
  gathers_and_scatters(self, dtype, count, root);
  exchanges(self, dtype, count);
  messages_to_all(self, dtype, count);
}

/// "aaaa" is a world of one host; averages are only known there, as the leaders of these tests do not divide.
void in_world(const Shape& shape, const std::function<void(const Rank&)>& body) {
  if (shape.hosts.find_first_not_of('a') != std::string::npos) {
    Job(shape, 1U << 20).run([&](HierarchicalCollectives& hierarchy, Group&, int rank) {
      HierarchicalTransport transport(hierarchy);
      body({transport, rank, shape.size()});
    });
  } else {
    run_group(shape.size(), [&](Group& group) {
      ShmTransport transport(group);
      body({transport, group.step_sync().rank(), shape.size(), &group});
    });
  }
}

void every_kind(const Rank& self, const Shape& shape, std::size_t count) {
  const bool one_host = shape.hosts.find_first_not_of('a') == std::string::npos;
  for (int d = 0; d < kDtypes; ++d) {
    const auto dtype = static_cast<Dtype>(d);
    moves(self, dtype, count, d % self.size);
    passes_on(self, dtype, count, d % self.size);
    for (int r = 0; r < kReductions; ++r) {
      const Kind kind{dtype, static_cast<Reduction>(r)};
      if (!makes_sense(kind.dtype, kind.reduction)) continue;
      if (!one_host && kind.reduction == Reduction::avg) continue;
      SCOPED_TRACE(std::string(name_of(dtype)) + ' ' + name_of(kind.reduction) + ' ' + std::to_string(count));
      reduces(self, kind, count, r % self.size);
    }
  }
}

class Conformance : public ::testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Conformance,
                         ::testing::Values(Shape{"a", 0}, Shape{"aa", 0}, Shape{"aaa", 0}, Shape{"aaaa", 0},
                                           Shape{"aaaaa", 0}, Shape{"aab", 1}, Shape{"aabb", 2},
                                           Shape{"aabba", 2}),
                         [](const auto& shape) { return shape.param.hosts; });

TEST_P(Conformance, OfEveryKindAndSize) {
  const Shape& shape = GetParam();
  const std::vector<std::size_t> sizes = is_long()
                                             ? std::vector<std::size_t>{0, 1, 3, 1023, 4097, 65'537, 300'007}
                                             : std::vector<std::size_t>{0, 1023};
  in_world(shape, [&](const Rank& self) {
    for (const std::size_t count : sizes) every_kind(self, shape, count);
  });
}

TEST_P(Conformance, OfLargeMessages) {
  const std::size_t bytes = is_long() ? 64U << 20 : 1U << 20;
  in_world(GetParam(), [&](const Rank& self) {
    for (const auto& kind : {Kind{Dtype::f32, Reduction::sum}, Kind{Dtype::bf16, Reduction::sum},
                             Kind{Dtype::i64, Reduction::max}, Kind{Dtype::boolean, Reduction::product}}) {
      reduces(self, kind, bytes / size_of(kind.dtype), self.size - 1);
      moves(self, kind.dtype, bytes / size_of(kind.dtype), 0);
      passes_on(self, kind.dtype, bytes / size_of(kind.dtype) / static_cast<std::size_t>(self.size), 0);
    }
  });
}

/// The same operations on every rank, with delays of each one's own.
TEST_P(Conformance, OfRandomSequences) {
  const int operations = is_long() ? 3000 : 100;
  in_world(GetParam(), [&](const Rank& self) {
    std::mt19937 shared(11), own(static_cast<unsigned>(self.rank));
    for (int i = 0; i < operations; ++i) {
      const std::size_t count = shared() % 4 == 0 ? shared() % 40'000 : shared() % 50;
      const int root = static_cast<int>(shared()) & 0x7FFFFFFF;
      const auto dtype = static_cast<Dtype>(shared() % (kDtypes - 1));
      if (own() % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(own() % 3));
      switch (shared() % 4) {
        case 0:
          reduces(self, {dtype, Reduction::max}, count, root % self.size);
          break;
        case 1:
          moves(self, dtype, count, root % self.size);
          break;
        case 2:
          passes_on(self, dtype, count, root % self.size);
          break;
        default:
          self.transport.barrier();
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::shm
