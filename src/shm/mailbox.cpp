#include "shm/mailbox.hpp"

#include <utility>

#include "lockstep/core/error.hpp"
#include "shm/chunks.hpp"
#include "shm/watch.hpp"

namespace lockstep::shm {
namespace {

std::string describe(Elements elements) {
  return std::to_string(elements.count) + " elements of " + name_of(elements.dtype);
}

}  // namespace

Mailbox::Mailbox(const Exchange& exchange, Heap& heap)
    : exchange_(exchange),
      heap_(heap),
      sent_(static_cast<std::size_t>(exchange.size())),
      numbers_(static_cast<std::size_t>(exchange.size())) {}

Control& Mailbox::control(int member) const {
  return control_of(*exchange_.peers()[static_cast<std::size_t>(member)].segment);
}

Channel& Mailbox::channel(int from, int to) const {
  return channel_of(*exchange_.peers()[static_cast<std::size_t>(from)].segment, exchange_.layout(), to);
}

std::vector<int> Mailbox::others(int source) const {
  if (source != kAnySource) return {source};
  std::vector<int> ranks;
  for (int r = 0; r < exchange_.size(); ++r) {
    if (r != exchange_.rank()) ranks.push_back(r);
  }
  return ranks;
}

/// Frees the memory of the letters that were taken.
void Mailbox::reclaim(int destination) {
  Channel& letters = channel(exchange_.rank(), destination);
  auto& sent = sent_[static_cast<std::size_t>(destination)];
  for (std::size_t i = 0; i < kLetters; ++i) {
    if (sent[i] == nullptr || letters.letters[i].state.load() != Delivery::free) continue;
    heap_.free(std::exchange(sent[i], nullptr));
  }
}

/// False when there is no free letter, or no room for the message, until others are taken.
bool Mailbox::post(int destination, int tag, const void* data, Elements elements) {
  const std::lock_guard lock(send_mutex_);
  reclaim(destination);
  auto& sent = sent_[static_cast<std::size_t>(destination)];
  std::size_t place = 0;
  while (place < kLetters && sent[place] != nullptr) ++place;
  if (place == kLetters) return false;
  void* const memory = heap_.allocate(elements.bytes());
  if (memory == nullptr) return false;
  copy_bytes(memory, data, elements.bytes());
  Letter& letter = channel(exchange_.rank(), destination).letters[place];
  letter.tag = tag;
  letter.number = ++numbers_[static_cast<std::size_t>(destination)];
  letter.count = elements.count;
  letter.dtype = elements.dtype;
  letter.offset = static_cast<std::uint64_t>(heap_.offset_of(memory, elements.bytes()));
  sent[place] = memory;
  letter.state.store(Delivery::posted);
  return true;
}

void Mailbox::send(int destination, int tag, const void* data, Elements elements) {
  const auto posted = [&] { return post(destination, tag, data, elements); };
  if (!posted()) {
    wait_for_mail(destination, posted, [&] {
      return "send to " + exchange_.members().called(destination) + ", tag " + std::to_string(tag) + " (" +
             describe(elements) + "), which must first receive what was sent before,";
    });
  }
  ring(control(destination).mail);
}

Letter* Mailbox::find(int source, int tag) const {
  Letter* found = nullptr;
  for (Letter& letter : channel(source, exchange_.rank()).letters) {
    if (letter.state.load() != Delivery::posted || letter.tag != tag) continue;
    if (found == nullptr || letter.number < found->number) found = &letter;
  }
  return found;
}

/// Looks twice: while the first look goes on, an older letter may be posted behind it and a younger one
/// before it. Of a letter that was seen, all older ones are seen by the next look.
Letter* Mailbox::oldest(int source, int tag) const {
  return find(source, tag) == nullptr ? nullptr : find(source, tag);
}

std::optional<int> Mailbox::try_receive(int source, int tag, void* data, Elements elements) {
  const std::lock_guard lock(receive_mutex_);
  for (const int from : others(source)) {
    Letter* const letter = oldest(from, tag);
    if (letter == nullptr) continue;
    const Elements came{letter->count, letter->dtype};
    const bool expected = came.count == elements.count && came.dtype == elements.dtype;
    const std::byte* base = exchange_.peers()[static_cast<std::size_t>(from)].segment->base();
    if (expected) copy_bytes(data, base + letter->offset, elements.bytes());
    letter->state.store(Delivery::free);
    ring(control(from).mail);
    if (expected) return from;
    throw CommunicationError(exchange_.members().who + ": recv from " + exchange_.members().called(from) +
                             ", tag " + std::to_string(tag) + ": expected " + describe(elements) +
                             ", but it sent " + describe(came));
  }
  return std::nullopt;
}

void Mailbox::wait_for_mail(int source, const std::function<bool()>& done,
                            const std::function<std::string()>& what) {
  const std::vector<int> ranks = others(source);
  Watch watch(exchange_.members(), exchange_.peers(), exchange_.timeout());
  Spinner spinner(exchange_.a_cpu_each());
  wait_on(control(exchange_.rank()).mail, spinner, done, [&] { watch.check_any(ranks, what); });
}

}  // namespace lockstep::shm
