#include "shm/p2p_queue.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::shm {
namespace {

std::string describe(Elements elements) {
  return fmt::format("{} elements of {}", elements.count, name_of(elements.dtype));
}

}  // namespace

P2PQueue::P2PQueue(const StepSync& sync, Heap& heap)
    : sync_(sync),
      heap_(heap),
      sent_(static_cast<std::size_t>(sync.size())),
      numbers_(static_cast<std::size_t>(sync.size())) {}

std::vector<int> P2PQueue::others(int source) const {
  if (source != kAnySource) return {source};
  std::vector<int> ranks;
  for (int r = 0; r < sync_.size(); ++r) {
    if (r != sync_.rank()) ranks.push_back(r);
  }
  return ranks;
}

/// Frees the memory of messages that were received.
void P2PQueue::reclaim(int destination) {
  Channel& slots = channel(sync_.rank(), destination);
  auto& sent = sent_[static_cast<std::size_t>(destination)];
  for (std::size_t i = 0; i < kP2PSlots; ++i) {
    if (sent[i] == nullptr || slots.slots[i].state.load() != Delivery::free) continue;
    heap_.free(std::exchange(sent[i], nullptr));
  }
}

/// False if there is no free slot or memory for the message: other messages must be received first.
bool P2PQueue::post(int destination, int tag, const void* data, Elements elements) {
  const std::lock_guard lock(send_mutex_);
  reclaim(destination);
  auto& sent = sent_[static_cast<std::size_t>(destination)];
  std::size_t index = 0;
  while (index < kP2PSlots && sent[index] != nullptr) ++index;
  if (index == kP2PSlots) return false;
  void* const memory = heap_.allocate(elements.bytes());
  if (memory == nullptr) return false;
  copy_bytes(memory, data, elements.bytes());
  P2PSlot& slot = channel(sync_.rank(), destination).slots[index];
  slot.tag = tag;
  slot.number = ++numbers_[static_cast<std::size_t>(destination)];
  slot.count = elements.count;
  slot.dtype = elements.dtype;
  slot.offset = static_cast<std::uint64_t>(heap_.offset_of(memory, elements.bytes()));
  sent[index] = memory;
  slot.state.store(Delivery::posted);
  return true;
}

void P2PQueue::send(int destination, int tag, const void* data, Elements elements) {
  sync_.throw_if_aborted([&] {
    return fmt::format("send to {}, tag {} ({})", sync_.members().called(destination), tag,
                       describe(elements));
  });
  const auto posted = [&] { return post(destination, tag, data, elements); };
  if (!posted()) {
    wait_until(destination, posted, [&] {
      return fmt::format("send to {}, tag {} ({}), which must first receive what was sent before,",
                         sync_.members().called(destination), tag, describe(elements));
    });
  }
  notify(sync_.control(destination).messages);
}

/// The oldest message with this tag.
P2PSlot* P2PQueue::find(int source, int tag) const {
  P2PSlot* found = nullptr;
  for (P2PSlot& slot : channel(source, sync_.rank()).slots) {
    if (slot.state.load() != Delivery::posted || slot.tag != tag) continue;
    if (found == nullptr || slot.number < found->number) found = &slot;
  }
  return found;
}

void P2PQueue::take(Receive& request, int from, P2PSlot& slot) {
  const Elements came{slot.count, slot.dtype};
  const bool expected = came.count == request.elements.count && came.dtype == request.elements.dtype;
  if (expected) copy_bytes(request.data, sync_.segment_of(from).base() + slot.offset, came.bytes());
  slot.state.store(Delivery::free);
  notify(sync_.control(from).messages);
  request.done = true;
  request.from = from;
  if (expected) return;
  request.failure = std::make_exception_ptr(CommunicationError(
      fmt::format("{}: recv from {}, tag {}: expected {}, but it sent {}", sync_.members().who,
                  sync_.members().called(from), request.tag, describe(request.elements), describe(came))));
}

void P2PQueue::take_if_there(Receive& request) {
  for (const int from : others(request.source)) {
    if (find(from, request.tag) == nullptr) continue;
    // During the first scan an older message may have been posted in a slot already passed, and a newer one
    // in a later slot. A second scan finds every message that is older than one found by the first.
    return take(request, from, *find(from, request.tag));
  }
}

P2PQueue::Handle P2PQueue::receive(Receive request) {
  auto handle = std::make_shared<Receive>(std::move(request));
  const std::lock_guard lock(receive_mutex_);
  receives_.push_back(handle);
  return handle;
}

/// Takes messages that have arrived, for this receive and those before it.
bool P2PQueue::is_done(const Handle& receive) {
  const auto compete = [](const Handle& one, const Handle& another) {
    const bool any = one->source == kAnySource || another->source == kAnySource;
    return one->tag == another->tag && (any || one->source == another->source);
  };
  const std::lock_guard lock(receive_mutex_);
  std::vector<Handle> unserved;
  for (auto next = receives_.begin(); !receive->done && next != receives_.end();) {
    // A message that arrives in the meantime belongs to the earlier receive.
    const bool must_wait =
        std::ranges::any_of(unserved, [&](const Handle& earlier) { return compete(earlier, *next); });
    if (!must_wait) take_if_there(**next);
    if (!must_wait && !(*next)->done) unserved.push_back(*next);
    next = (*next)->done ? receives_.erase(next) : std::next(next);
  }
  return receive->done;
}

int P2PQueue::wait(const Handle& receive) {
  if (!is_done(receive)) {
    wait_until(
        receive->source, [&] { return is_done(receive); },
        [&] {
          const bool any = receive->source == kAnySource;
          return fmt::format("recv from {}, tag {}",
                             any ? "any rank" : sync_.members().called(receive->source), receive->tag);
        });
  }
  if (receive->failure) std::rethrow_exception(receive->failure);
  return receive->from;
}

std::exception_ptr P2PQueue::failure_of(const Handle& receive) {
  const std::lock_guard lock(receive_mutex_);
  return receive->failure;
}

int P2PQueue::source_of(const Handle& receive) {
  const std::lock_guard lock(receive_mutex_);
  return receive->from;
}

/// `done` is evaluated whenever a message may have arrived. Throws if `source` can no longer send.
void P2PQueue::wait_until(int source, const std::function<bool()>& done,
                          const std::function<std::string()>& what) {
  const std::vector<int> ranks = others(source);
  LivenessCheck liveness(sync_);
  Spinner spinner(sync_.has_cpu_per_rank());
  wait_on(sync_.control(sync_.rank()).messages, spinner, done, [&] { liveness.check(ranks, true, what); });
}

}  // namespace lockstep::shm
