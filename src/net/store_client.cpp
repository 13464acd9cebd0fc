#include "net/store_client.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"
#include "net/control.hpp"
#include "net/socket.hpp"

namespace lockstep::net {
namespace {

void check_length(std::string_view what, std::size_t length, std::uint64_t limit) {
  if (length <= limit) return;
  throw UsageError("a store takes a " + std::string(what) + " of at most " + std::to_string(limit) +
                   " bytes, not of " + std::to_string(length) + ".");
}

void put_key(Writer& writer, const std::string& key) {
  const std::string wire = wire_key(key);
  check_length("key", wire.size(), kLongestKey);
  writer.text(wire);
}

void put_value(Writer& writer, std::string_view value) {
  check_length("value", value.size(), kLongestValue);
  writer.text(value);
}

Writer about(QueryType type, const std::string& key) {
  Writer writer;
  writer.type(type);
  put_key(writer, key);
  return writer;
}

Writer about(QueryType type, const std::string& key, std::string_view value) {
  Writer writer = about(type, key);
  put_value(writer, value);
  return writer;
}

Writer about(QueryType type, const std::vector<std::string>& keys) {
  check_length("list", keys.size(), kMostKeys);
  Writer writer;
  writer.type(type).number(keys.size());
  for (const auto& key : keys) put_key(writer, key);
  return writer;
}

[[noreturn]] void fail(ControlFailure failure, const std::string& where, const std::string& what) {
  throw ControlError(failure, "at " + where + " " + what);
}

/// Says hello as PyTorch's clients do; whether the answer is a store's.
bool greet(int socket, Deadline deadline) {
  const std::string sent = greeting(static_cast<std::uint32_t>(getpid()));
  send_all(socket, sent, deadline);
  std::string answer(4, '\0');
  receive_exactly(socket, answer.data(), answer.size(), deadline);
  return sent.ends_with(answer);
}

/// Greets a plain store, and tells apart what else may be there.
void greet_plainly(int socket, Deadline deadline) {
  const std::string where = remote_address(socket).text();
  bool is_store = false;
  try {
    is_store = greet(socket, deadline);
  } catch (const TimeoutError&) {
    fail(ControlFailure::silent, where,
         "something listens that does not answer as a store does: another program may hold the port.");
  } catch (const CommunicationError& error) {
    fail(ControlFailure::not_lockstep, where,
         std::string("the connection ended before anything was said (") + error.what() +
             "): the store does not allow this host or user, or is none.");
  }
  if (is_store) return;
  fail(ControlFailure::not_lockstep, where,
       "something listens that is no store: another program holds the port. Choose another one.");
}

bool prove(int socket, const StoreClientOptions& options, Deadline deadline) {
  if (client_handshake(socket, Purpose::store, options.secret, deadline) == Met::lockstep) return true;
  if (options.plain_server) return false;
  fail(ControlFailure::plain_store, remote_address(socket).text(),
       "a plain store answers, which does not know the job's secret.");
}

}  // namespace

StoreClient::StoreClient(const std::vector<Address>& addresses, StoreClientOptions options, Deadline deadline)
    : socket_(connect_to(addresses, deadline)) {
  constexpr std::chrono::seconds kPatience{10};
  if (options.secret.empty()) {
    greet_plainly(socket_.get(), earlier(deadline, Clock::now() + kPatience));
  } else {
    proven_ = prove(socket_.get(), options, deadline);
  }
}

FileDescriptor StoreClient::duplicate() const {
  check_open();
  FileDescriptor copy(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  if (copy) return copy;
  throw CommunicationError(std::string("cannot keep the connection to the store: ") + std::strerror(errno) +
                           ". Raise the limit on open files (ulimit -n).");
}

void StoreClient::check_open() const {
  if (!socket_) throw CommunicationError("the connection to the store was lost earlier.");
}

/// One request and its answer. Whatever goes wrong in between leaves an unknown part of the answer on the
/// way: the connection is of no use after that.
template <class Read>
auto StoreClient::call(const Writer& request, Deadline deadline, Read&& read) {
  check_open();
  try {
    settle(deadline);
    send_all(socket_.get(), request.bytes(), deadline);
    ReplyReader reader(
        [&](char* into, std::size_t count) { receive_exactly(socket_.get(), into, count, deadline); });
    return read(reader);
  } catch (...) {
    socket_.reset();
    throw;
  }
}

void StoreClient::send(const Writer& request, Deadline deadline) {
  call(request, deadline, [](ReplyReader&) {});
}

void StoreClient::set(const std::string& key, std::string_view value, Deadline deadline) {
  send(about(QueryType::set, key, value), deadline);
}

std::string StoreClient::get(const std::string& key, Deadline deadline) {
  if (!wait({key}, deadline)) throw TimeoutError("nobody set '" + key + "' in the store in time.");
  // The key is there: what remains is an answer, for which the deadline that has just been met may be too
  // near.
  constexpr std::chrono::seconds kForTheAnswer{5};
  const Deadline late = std::max(deadline, Clock::now() + kForTheAnswer);
  return call(about(QueryType::get, key), late, [](ReplyReader& reply) { return reply.text(); });
}

std::string StoreClient::compare_set(const std::string& key, std::string_view expected,
                                     std::string_view desired, Deadline deadline) {
  Writer request = about(QueryType::compare_set, key, expected);
  put_value(request, desired);
  return call(request, deadline, [](ReplyReader& reply) { return reply.text(); });
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount, Deadline deadline) {
  Writer request = about(QueryType::add, key);
  request.number(static_cast<std::uint64_t>(amount));
  return call(request, deadline, [](ReplyReader& reply) { return reply.number(); });
}

void StoreClient::append(const std::string& key, std::string_view value, Deadline deadline) {
  send(about(QueryType::append, key, value), deadline);
}

bool StoreClient::erase(const std::string& key, Deadline deadline) {
  return call(about(QueryType::delete_key, key), deadline,
              [](ReplyReader& reply) { return reply.number() > 0; });
}

bool StoreClient::contains(const std::vector<std::string>& keys, Deadline deadline) {
  return call(about(QueryType::check, keys), deadline,
              [](ReplyReader& reply) { return reply.byte() == kReady; });
}

bool StoreClient::wait(const std::vector<std::string>& keys, Deadline deadline) {
  const Writer request = about(QueryType::wait, keys);
  check_open();
  if (wait_is_taken_back_ && !await_ready(socket_.get(), POLLIN, deadline)) return false;
  constexpr std::chrono::seconds kForTheRequest{5};
  const Deadline late = std::max(deadline, Clock::now() + kForTheRequest);
  return call(request, late, [&](ReplyReader& reply) {
    if (await_ready(socket_.get(), POLLIN, deadline)) return reply.byte() == kWaitEnded;
    return take_wait_back();
  });
}

/// True when it ended just before: a short wait may be over sooner than the store has answered. Little time
/// is spent on what the store says to that, for it may be out of reach.
bool StoreClient::take_wait_back() {
  constexpr std::chrono::seconds kForAllOfIt{5};
  constexpr std::chrono::milliseconds kMoment{500};
  const char request = static_cast<char>(QueryType::cancel_wait);
  send_all(socket_.get(), {&request, 1}, Clock::now() + kForAllOfIt);
  wait_is_taken_back_ = true;
  return await_ready(socket_.get(), POLLIN, Clock::now() + kMoment) && settle(Clock::now() + kForAllOfIt);
}

/// Hears the store on a wait that was taken back; true when it had ended before.
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
  return call(Writer().type(QueryType::count_keys), deadline,
              [](ReplyReader& reply) { return reply.number(); });
}

std::vector<std::string> StoreClient::keys(Deadline deadline) {
  auto all =
      call(Writer().type(QueryType::list_keys), deadline, [](ReplyReader& reply) { return reply.texts(); });
  std::erase_if(all, [](const auto& key) { return !key.starts_with(kKeyPrefix); });
  for (auto& key : all) key.erase(0, kKeyPrefix.size());
  return all;
}

std::vector<std::string> StoreClient::get_many(const std::vector<std::string>& keys, Deadline deadline) {
  return call(about(QueryType::multi_get, keys), deadline, [&](ReplyReader& reply) {
    std::vector<std::string> values;
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(reply.text());
    return values;
  });
}

void StoreClient::set_many(const std::vector<std::string>& keys, const std::vector<std::string>& values,
                           Deadline deadline) {
  if (keys.size() != values.size()) {
    throw UsageError("set_many: " + std::to_string(keys.size()) + " keys and " +
                     std::to_string(values.size()) + " values.");
  }
  check_length("list", keys.size(), kMostKeys);
  Writer request;
  request.type(QueryType::multi_set).number(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    put_key(request, keys[i]);
    put_value(request, values[i]);
  }
  send(request, deadline);
}

void StoreClient::push(const std::string& queue, std::string_view value, Deadline deadline) {
  send(about(QueryType::queue_push, queue, value), deadline);
}

std::optional<std::string> StoreClient::pop(const std::string& queue, Deadline deadline) {
  return call(about(QueryType::queue_pop, queue), deadline, [](ReplyReader& reply) {
    return reply.number() > 0 ? std::optional(reply.text()) : std::nullopt;
  });
}

std::int64_t StoreClient::length(const std::string& queue, Deadline deadline) {
  return call(about(QueryType::queue_length, queue), deadline,
              [](ReplyReader& reply) { return reply.number(); });
}

std::int64_t StoreClient::register_client(Deadline deadline) {
  Writer request;
  request.type(QueryType::add).text(kClientCountKey).number(1);
  return call(request, deadline, [](ReplyReader& reply) { return reply.number(); });
}

void StoreClient::ping(Deadline deadline) {
  Writer request;
  request.type(QueryType::ping);
  const std::string nonce = "ping";
  call(request, deadline, [&](ReplyReader&) {
    send_all(socket_.get(), nonce, deadline);
    std::string answer(nonce.size(), '\0');
    receive_exactly(socket_.get(), answer.data(), answer.size(), deadline);
    if (answer != nonce) throw CommunicationError("the store answered a ping with something else.");
  });
}

}  // namespace lockstep::net
