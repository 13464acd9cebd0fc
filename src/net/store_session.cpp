#include "net/store_session.hpp"

#include <algorithm>
#include <memory>

namespace lockstep::net {
namespace {

/// More than this on its way out, and no more requests are taken.
constexpr std::size_t kCongestion = 256 * 1024;

}  // namespace

bool StoreSession::is_congested() const { return send_buffer_.pending() > kCongestion; }

void StoreSession::receive(std::string_view& bytes) {
  while (!bytes.empty() && !is_congested()) {
    if (auto request = parser_.feed(bytes)) {
      execute(*request);
      ++executed_;
    }
  }
}

void StoreSession::execute(Request& request) {
  auto& strings = request.strings;
  switch (request.type) {
    case QueryType::validate:
      break;  // The parser lets none through.
    case QueryType::set:
      return table_.set(strings[0], std::move(strings[1]));
    case QueryType::compare_set:
      if (const Value held = table_.compare_set(strings[0], strings[1], std::move(strings[2]))) {
        return send_buffer_.put_value(held);
      }
      answer_number(strings[1].size());
      return send_buffer_.put(strings[1]);
    case QueryType::get:
      return send_buffer_.put_value(table_.get(strings[0]));
    case QueryType::add:
      return answer_number(
          static_cast<std::uint64_t>(table_.add(strings[0], static_cast<std::int64_t>(request.number))));
    case QueryType::check: {
      const bool all =
          std::all_of(strings.begin(), strings.end(), [&](auto& key) { return table_.contains(key); });
      return send_buffer_.put({all ? &kReady : &kNotReady, 1});
    }
    case QueryType::wait:
      return wait(strings);
    case QueryType::count_keys:
      return answer_number(table_.size());
    case QueryType::delete_key:
      return answer_number(table_.erase(strings[0]) ? 1 : 0);
    case QueryType::append:
      return table_.append(strings[0], strings[1]);
    case QueryType::multi_get:
      for (const auto& key : strings) send_buffer_.put_value(table_.get(key));
      return;
    case QueryType::multi_set:
      return set_many(strings);
    case QueryType::cancel_wait:
      table_.cancel(id_);
      return send_buffer_.put({&kWaitCancelled, 1});
    case QueryType::ping:
      return send_buffer_.put(wire_number(request.number).substr(0, 4));
    case QueryType::queue_push:
      return table_.push(strings[0], std::move(strings[1]));
    case QueryType::queue_pop:
      return answer_pop(strings[0]);
    case QueryType::queue_length:
      return answer_number(table_.length(strings[0]));
    case QueryType::list_keys:
      return answer_keys();
  }
}

void StoreSession::set_many(std::vector<std::string>& strings) {
  for (std::size_t i = 0; i + 1 < strings.size(); i += 2) table_.set(strings[i], std::move(strings[i + 1]));
}

void StoreSession::wait(const std::vector<std::string>& keys) {
  if (table_.wait(id_, keys)) end_wait();
}

void StoreSession::answer_pop(const std::string& queue) {
  answer_number(table_.length(queue));
  if (const Value value = table_.pop(queue)) send_buffer_.put_value(value);
}

void StoreSession::answer_keys() {
  answer_number(table_.size());
  for (const auto& key : table_.keys()) {
    answer_number(key.size());
    send_buffer_.put(key);
  }
}

}  // namespace lockstep::net
