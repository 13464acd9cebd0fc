// A rank whose way to the job's store is cut while it has to say, and to find out, what went wrong.

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/c10d_handles.hpp"
#include "comm/diagnostics/peer_monitor.hpp"
#include "comm/diagnostics/peer_status.hpp"
#include "comm/first_failure.hpp"

namespace lockstep::comm {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Keys = std::vector<std::string>;
using Milliseconds = std::chrono::milliseconds;

/// What all connections to a store share.
struct Line {
  c10d::HashStore store;
  std::atomic<bool> is_cut{false};
};

/// The milliseconds that calls of this thread would have waited on lines that were cut. No test waits so
/// long.
thread_local std::int64_t waited = 0;

/// A connection over a line that can be cut: what is told is lost then, and what is asked waits for its
/// timeout, after which the connection is closed, as TcpStoreAdapter does; all but a wait.
class CuttableStore final : public c10d::Store {
 public:
  explicit CuttableStore(std::shared_ptr<Line> line) : line_(std::move(line)) {}

  c10::intrusive_ptr<c10d::Store> clone() override { return c10::make_intrusive<CuttableStore>(line_); }

  void set(const std::string& key, const Bytes& value) override {
    if (!line_->is_cut) line_->store.set(key, value);
  }
  void append(const std::string& key, const Bytes& value) override {
    if (!line_->is_cut) line_->store.append(key, value);
  }
  void multiSet(const Keys& keys, const std::vector<Bytes>& values) override {
    if (!line_->is_cut) line_->store.multiSet(keys, values);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    must_answer();
    return line_->store.compareSet(key, expected, desired);
  }
  Bytes get(const std::string& key) override {
    must_answer();
    return line_->store.get(key);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    must_answer();
    return line_->store.add(key, value);
  }
  bool deleteKey(const std::string& key) override {
    must_answer();
    return line_->store.deleteKey(key);
  }
  bool check(const Keys& keys) override {
    must_answer();
    return line_->store.check(keys);
  }
  std::int64_t getNumKeys() override {
    must_answer();
    return line_->store.getNumKeys();
  }
  void wait(const Keys& keys) override { wait(keys, timeout_); }
  void wait(const Keys& keys, const Milliseconds& timeout) override {
    if (!line_->is_cut) return line_->store.wait(keys, timeout);
    waited += timeout.count();
    C10_THROW_ERROR(DistStoreError, "wait timeout");
  }
  bool hasExtendedApi() const override { return true; }

 private:
  void must_answer() {
    if (line_->is_cut) lose(timeout_);
  }
  [[noreturn]] void lose(Milliseconds waits) {
    if (is_closed_) C10_THROW_ERROR(DistNetworkError, "the connection to the store was lost earlier");
    is_closed_ = true;
    waited += waits.count();
    C10_THROW_ERROR(DistStoreError, "store timeout");
  }

  std::shared_ptr<Line> line_;
  bool is_closed_ = false;
};

TEST(CutOff, ARankSpendsLittleTimeOnAStoreOutOfReach) {
  const auto line = std::make_shared<Line>();
  const Store store(to_shared<c10d::Store>(c10::make_intrusive<CuttableStore>(line)));
  PeerMonitor monitor(store.with_prefix("peer_monitor"), std::make_shared<FlightRecorder>(0, 2, 10),
                      Milliseconds(0));
  const FirstFailure note(store.with_prefix("failure"), GroupInfo::whole(0, 2));
  line->is_cut = true;
  waited = 0;
  note.post("a link is down");
  const PeerStatus found = monitor.ask(Milliseconds(2000));
  EXPECT_TRUE(found.departed.empty());
  EXPECT_FALSE(found.store_answers);
  EXPECT_LE(waited, 2000);
  line->is_cut = false;  // So that the monitor ends at once.
}

TEST(CutOff, WhoDoesNotAnswerIsNamedAndSoIsTheStore) {
  FlightRecorder recorder(0, 2, 10);
  const GroupFacts group{"world", {0, 1}, "gloo"};
  OpMeta meta;
  meta.name = "all_reduce";
  const auto record = *recorder.find(recorder.begin(recorder.add_group(group), meta));
  PeerStatus found;
  EXPECT_EQ(waiting_for(record, group, 0, found).text, "rank 1 does not answer: stopped, or gone");
  found.store_answers = false;
  const WaitingFor waiting = waiting_for(record, group, 0, found);
  EXPECT_EQ(waiting.text, "rank 1 does not answer, and neither does the job's store: disconnected, or gone");
  EXPECT_EQ(waiting.missing, std::vector<int>{1});
}

TEST(FirstFailures, AreReadFromTheFirst) {
  const Store store = Store::in_memory();
  const FirstFailure one(store, GroupInfo::whole(0, 2)), two(store, GroupInfo::whole(1, 2));
  EXPECT_EQ(one.read(Milliseconds(1)), "");
  one.post("rank 3 has ended\nits last words");
  two.post("rank 1 gave up");
  EXPECT_EQ(two.read(Milliseconds(1)), "rank 3 has ended\nits last words");
}

}  // namespace
}  // namespace lockstep::comm
