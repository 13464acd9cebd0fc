#include "comm/revocation_watch.hpp"

#include <fmt/core.h>

#include <atomic>
#include <utility>
#include <vector>

#include "comm/group_key_value_store.hpp"
#include "coordination/wait_times.hpp"
#include "core/runtime/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

/// A wait ends with the key. The limit only lets a store that is gone be noticed.
constexpr std::chrono::minutes kLongestWait{1};
constexpr const char* kRevoked = "revoked";

std::string wake_key(int rank) { return fmt::format("wake/{}", rank); }

}  // namespace

struct RevocationWatch::Shared {
  Shared(const Store& keys, ProcessGroup watched, std::function<void(const std::string&)> notice)
      : group(std::move(watched)),
        on_revoked(std::move(notice)),
        listener(key_value_store(keys.clone())),
        sender(key_value_store(bounded(keys, coordination::kWaitTimes.store_answer))) {}

  void run() noexcept {
    try {
      while (!stopping && !listener->wait(wake_key(group.rank()), kLongestWait)) {
      }
      if (!listener->contains(kRevoked)) return;
      const std::string why = listener->get(kRevoked);
      revoked = true;
      if (on_revoked) on_revoked(why);
      group.abort(why);
    } catch (const std::exception&) {
      // The store is gone: what fails then is noticed by the connections between the ranks.
    }
  }

  ProcessGroup group;
  std::function<void(const std::string&)> on_revoked;
  std::shared_ptr<KeyValueStore> listener;
  std::shared_ptr<KeyValueStore> sender;
  std::atomic<bool> stopping{false};
  std::atomic<bool> revoked{false};
};

RevocationWatch::RevocationWatch(const Store& store, const ProcessGroup& group, std::uint64_t generation,
                                 std::function<void(const std::string&)> on_revoked)
    : shared_(std::make_shared<Shared>(store.with_prefix(fmt::format("generation/{}", generation)), group,
                                       std::move(on_revoked))),
      thread_(signal_free_thread([shared = shared_] { shared->run(); })) {}

RevocationWatch::~RevocationWatch() {
  shared_->stopping = true;
  try {
    shared_->sender->set(wake_key(shared_->group.rank()), "1");
    thread_.join();
  } catch (const std::exception&) {
    // The thread notices by itself that the store is gone.
    thread_.detach();
  }
}

void RevocationWatch::revoke(const std::string& why) {
  shared_->sender->set_if_absent(kRevoked, why.empty() ? "no reason was given" : why);
  std::vector<std::pair<std::string, std::string>> wakes;
  for (int rank = 0; rank < shared_->group.size(); ++rank) wakes.emplace_back(wake_key(rank), "1");
  shared_->sender->set_many(wakes);
}

bool RevocationWatch::is_revoked() const noexcept { return shared_->revoked; }

}  // namespace lockstep::comm
