#include "shm/p2p_queue.hpp"

#include <fmt/core.h>

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

/// False while there is no free slot or no memory for the message: others must be received first.
bool P2PQueue::post(int destination, int tag, const void* data, Elements elements) {
  const std::lock_guard lock(send_mutex_);
  reclaim(destination);
  auto& sent = sent_[static_cast<std::size_t>(destination)];
  std::size_t place = 0;
  while (place < kP2PSlots && sent[place] != nullptr) ++place;
  if (place == kP2PSlots) return false;
  void* const memory = heap_.allocate(elements.bytes());
  if (memory == nullptr) return false;
  copy_bytes(memory, data, elements.bytes());
  P2PSlot& slot = channel(sync_.rank(), destination).slots[place];
  slot.tag = tag;
  slot.number = ++numbers_[static_cast<std::size_t>(destination)];
  slot.count = elements.count;
  slot.dtype = elements.dtype;
  slot.offset = static_cast<std::uint64_t>(heap_.offset_of(memory, elements.bytes()));
  sent[place] = memory;
  slot.state.store(Delivery::posted);
  return true;
}

void P2PQueue::send(int destination, int tag, const void* data, Elements elements) {
  const auto posted = [&] { return post(destination, tag, data, elements); };
  if (!posted()) {
    wait_for_message(destination, posted, [&] {
      return fmt::format("send to {}, tag {} ({}), which must first receive what was sent before,",
                         sync_.members().called(destination), tag, describe(elements));
    });
  }
  notify(sync_.control(destination).messages);
}

/// The oldest.
P2PSlot* P2PQueue::find(int source, int tag) const {
  P2PSlot* found = nullptr;
  for (P2PSlot& slot : channel(source, sync_.rank()).slots) {
    if (slot.state.load() != Delivery::posted || slot.tag != tag) continue;
    if (found == nullptr || slot.number < found->number) found = &slot;
  }
  return found;
}

std::optional<int> P2PQueue::try_receive(int source, int tag, void* data, Elements elements) {
  const std::lock_guard lock(receive_mutex_);
  for (const int from : others(source)) {
    if (find(from, tag) == nullptr) continue;
    // During that scan an older message may have been posted behind it and a younger one before it. A second
    // one sees every message that is older than one seen by the first.
    P2PSlot* const slot = find(from, tag);
    const Elements came{slot->count, slot->dtype};
    const bool expected = came.count == elements.count && came.dtype == elements.dtype;
    if (expected) copy_bytes(data, sync_.segment_of(from).base() + slot->offset, elements.bytes());
    slot->state.store(Delivery::free);
    notify(sync_.control(from).messages);
    if (expected) return from;
    throw CommunicationError(fmt::format("{}: recv from {}, tag {}: expected {}, but it sent {}",
                                         sync_.members().who, sync_.members().called(from), tag,
                                         describe(elements), describe(came)));
  }
  return std::nullopt;
}

void P2PQueue::wait_for_message(int source, const std::function<bool()>& done,
                                const std::function<std::string()>& what) {
  const std::vector<int> ranks = others(source);
  Watch watch(sync_);
  Spinner spinner(sync_.has_cpu_per_rank());
  wait_on(sync_.control(sync_.rank()).messages, spinner, done, [&] { watch.check(ranks, true, what); });
}

}  // namespace lockstep::shm
