#include "net/store/client.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "net/handshake.hpp"
#include "net/socket.hpp"

namespace lockstep::net {
namespace {

Writer request(QueryType type) { return Writer().type(type); }

Writer request(QueryType type, const std::vector<std::string>& keys) {
  Writer writer = request(type).count(keys.size());
  for (const auto& key : keys) writer.key(key);
  return writer;
}

}  // namespace

StoreClient::StoreClient(const std::vector<Address>& addresses, StoreClientOptions options, Deadline deadline)
    : socket_(connect_to(addresses, deadline)) {
  proven_ = client_handshake(socket_.get(), Purpose::store, options.secret, deadline) == PeerKind::lockstep;
  if (proven_ || options.secret.empty() || options.plain_server) return;
  throw ControlError(
      ControlFailure::plain_store,
      fmt::format("at {} a plain store answers, which does not know the job's secret.", remote().text()));
}

FileDescriptor StoreClient::duplicate() const {
  check_open();
  FileDescriptor copy(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  throw CommunicationError(
      fmt::format("cannot keep the connection to the store: {}. Raise the limit on open files (ulimit -n).",
                  std::strerror(errno)));
}

void StoreClient::check_open() const {
  if (!socket_) throw CommunicationError("the connection to the store was lost earlier.");
}

/// One request and its answer. After a failure, part of the answer may still arrive, so the connection cannot
/// be used any more.
template <class Read>
auto StoreClient::call(const Writer& request, Deadline deadline, Read&& read) {
  check_open();
  try {
    settle(deadline);
    send_all(socket_.get(), request.bytes(), deadline);
    ReplyReader reader(
        [&](char* into, std::size_t count) { receive_exactly(socket_.get(), into, count, deadline); });
    return std::invoke(read, reader);
  } catch (...) {
    socket_.reset();
    throw;
  }
}

void StoreClient::send(const Writer& request, Deadline deadline) {
  call(request, deadline, [](ReplyReader&) {});
}

void StoreClient::set(const std::string& key, std::string_view value, Deadline deadline) {
  send(request(QueryType::set).key(key).value(value), deadline);
}

std::string StoreClient::get(const std::string& key, Deadline deadline) {
  if (!wait({key}, deadline)) {
    throw TimeoutError(fmt::format("no rank set '{}' in the store in time.", key));
  }
  // The key exists; the deadline that has just been met may be too close for the answer.
  constexpr std::chrono::seconds kForTheAnswer{5};
  const Deadline late = std::max(deadline, Clock::now() + kForTheAnswer);
  return call(request(QueryType::get).key(key), late, &ReplyReader::text);
}

std::string StoreClient::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired, Deadline deadline) {
  return call(request(QueryType::compare_set).key(key).value(expected).value(desired), deadline,
              &ReplyReader::text);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  return call(request(QueryType::add).key(key).number(static_cast<std::uint64_t>(amount)), deadline,
              &ReplyReader::number);
}

void StoreClient::append(const std::string& key, std::string_view value, Deadline deadline) {
  send(request(QueryType::append).key(key).value(value), deadline);
}

bool StoreClient::erase(const std::string& key, Deadline deadline) {
  return call(request(QueryType::delete_key).key(key), deadline, &ReplyReader::number) > 0;
}

bool StoreClient::contains(const std::vector<std::string>& keys, Deadline deadline) {
  return call(request(QueryType::check, keys), deadline, &ReplyReader::byte) == kReady;
}

bool StoreClient::wait(const std::vector<std::string>& keys, Deadline deadline) {
  const Writer wait_request = request(QueryType::wait, keys);
  check_open();
  if (wait_is_taken_back_ && !await_ready(socket_.get(), POLLIN, deadline)) return false;
  constexpr std::chrono::seconds kForTheRequest{5};
  const Deadline late = std::max(deadline, Clock::now() + kForTheRequest);
  return call(wait_request, late, [&](ReplyReader& reply) {
    if (await_ready(socket_.get(), POLLIN, deadline)) return reply.byte() == kWaitEnded;
    return take_wait_back();
  });
}

/// Cancels the wait. Returns true if it had just ended: a short wait may end before the answer arrives. Waits
/// only briefly for the store's answer, because the store may be unreachable.
bool StoreClient::take_wait_back() {
  constexpr std::chrono::seconds kForAllOfIt{5};
  constexpr std::chrono::milliseconds kMoment{500};
  const char request = static_cast<char>(QueryType::cancel_wait);
  send_all(socket_.get(), {&request, 1}, Clock::now() + kForAllOfIt);
  wait_is_taken_back_ = true;
  return await_ready(socket_.get(), POLLIN, Clock::now() + kMoment) && settle(Clock::now() + kForAllOfIt);
}

/// Reads the store's answer to a cancel_wait, if pending. Returns true if the wait had ended before.
bool StoreClient::settle(Deadline deadline) {
  if (!wait_is_taken_back_) return false;
  char said = kWaitCancelled;
  receive_exactly(socket_.get(), &said, 1, deadline);
  const bool ended = said != kWaitCancelled;
  if (ended) receive_exactly(socket_.get(), &said, 1, deadline);
  wait_is_taken_back_ = false;
  return ended;
}

std::int64_t StoreClient::count(Deadline deadline) {
  return call(request(QueryType::count_keys), deadline, &ReplyReader::number);
}

std::vector<std::string> StoreClient::keys(Deadline deadline) {
  auto all = call(request(QueryType::list_keys), deadline, &ReplyReader::texts);
  std::erase_if(all, [](const auto& key) { return !key.starts_with(kKeyPrefix); });
  for (auto& key : all) key.erase(0, kKeyPrefix.size());
  return all;
}

std::vector<std::string> StoreClient::get_many(const std::vector<std::string>& keys, Deadline deadline) {
  return call(request(QueryType::multi_get, keys), deadline, [&](ReplyReader& reply) {
    std::vector<std::string> values;
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(reply.text());
    return values;
  });
}

void StoreClient::set_many(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                           Deadline deadline) {
  if (keys.size() != values.size()) {
    throw UsageError(fmt::format("set_many: {} keys and {} values.", keys.size(), values.size()));
  }
  Writer writer = request(QueryType::multi_set).count(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) writer.key(keys[i]).value(values[i]);
  send(writer, deadline);
}

void StoreClient::push(const std::string& queue, std::string_view value, Deadline deadline) {
  send(request(QueryType::queue_push).key(queue).value(value), deadline);
}

std::optional<std::string> StoreClient::pop(const std::string& queue, Deadline deadline) {
  return call(request(QueryType::queue_pop).key(queue), deadline, [](ReplyReader& reply) {
    return reply.number() > 0 ? std::optional(reply.text()) : std::nullopt;
  });
}

std::int64_t StoreClient::length(const std::string& queue, Deadline deadline) {
  return call(request(QueryType::queue_length).key(queue), deadline, &ReplyReader::number);
}

std::int64_t StoreClient::register_client(Deadline deadline) {
  return call(request(QueryType::add).text(kClientCountKey).number(1), deadline, &ReplyReader::number);
}

void StoreClient::ping(Deadline deadline) {
  const std::string nonce = "ping";
  call(request(QueryType::ping), deadline, [&](ReplyReader&) {
    send_all(socket_.get(), nonce, deadline);
    std::string answer(nonce.size(), '\0');
    receive_exactly(socket_.get(), answer.data(), answer.size(), deadline);
    if (answer != nonce) throw CommunicationError("the store answered a ping with something else.");
  });
}

}  // namespace lockstep::net
