#include "net/server.hpp"

#include <charconv>
#include <utility>

#include "net/server_loop.hpp"
#include "net/store_protocol.hpp"

namespace lockstep::net {

Server::Server(FileDescriptor listener, ServerOptions options)
    : loop_(std::make_unique<Loop>(std::move(listener), std::move(options))) {}

Server::~Server() = default;

Address Server::address() const { return loop_->address(); }

void Server::set(const std::string& key, const std::string& value) {
  loop_->change([&](KeyValueTable& table) { table.set(wire_key(key), value); });
}

std::optional<std::string> Server::get(const std::string& key) const {
  return loop_->read([&](KeyValueTable& table) {
    const Value value = table.get(wire_key(key));
    return value ? std::optional(value->bytes) : std::nullopt;
  });
}

bool Server::contains(const std::string& key) const {
  return loop_->read([&](KeyValueTable& table) { return table.contains(wire_key(key)); });
}

bool Server::erase(const std::string& key) {
  return loop_->change([&](KeyValueTable& table) { return table.erase(wire_key(key)); });
}

std::int64_t Server::add(const std::string& key, std::int64_t amount) {
  return loop_->change([&](KeyValueTable& table) { return table.add(wire_key(key), amount); });
}

std::int64_t Server::client_count() const {
  return loop_->read([&](KeyValueTable& table) {
    std::int64_t count = 0;
    if (const Value value = table.get(std::string(kClientCountKey))) {
      std::from_chars(value->bytes.data(), value->bytes.data() + value->bytes.size(), count);
    }
    return count;
  });
}

void Server::watch(const std::string& prefix) {
  loop_->change([&](KeyValueTable& table) { table.watch(wire_key(prefix)); });
}

int Server::events_descriptor() const { return loop_->events_descriptor(); }
ServerEvents Server::take_events() { return loop_->take_events(); }
void Server::allow(const Address& host) { loop_->allow(host); }
void Server::forget(const Address& host) { loop_->forget(host); }
void Server::answer(std::uint64_t id, bool verified) { loop_->answer(id, verified); }
void Server::clear(const std::string& kept_prefix) { loop_->clear(wire_key(kept_prefix)); }
ServerCounts Server::counts() const { return loop_->counts(); }
void Server::stop() { loop_->stop(); }

}  // namespace lockstep::net
