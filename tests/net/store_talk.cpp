// Every request of our client at the store of a port of this host; prints what came of each.
//
//   store_talk PORT [queues] [python] [secret=...]

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "net/handshake.hpp"
#include "net/store/client.hpp"

namespace {

using namespace lockstep::net;

Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

void say(const char* what, const std::string& result) { std::printf("%s %s\n", what, result.c_str()); }
void say(const char* what, std::int64_t result) { say(what, std::to_string(result)); }

void talk_of_values(StoreClient& client) {
  client.set("a", "1", soon());
  say("get", client.get("a", soon()));
  client.set("empty", "", soon());
  say("get empty", client.get("empty", soon()));
  say("add", client.add("n", 5, soon()));
  say("add", client.add("n", -7, soon()));
  say("get n", client.get("n", soon()));
  say("contains", client.contains({"a", "n"}, soon()));
  say("contains", client.contains({"a", "no"}, soon()));
  say("contains", client.contains({}, soon()));
  say("wait", client.wait({"a", "n"}, soon()));
  say("wait", client.wait({"a", "no"}, Clock::now() + Milliseconds(30)));
  say("compare_set", client.compare_set("cs", "", "x", soon()));
  say("compare_set", client.compare_set("cs", "x", "y", soon()));
  say("compare_set", client.compare_set("cs", "x", "z", soon()));
  say("compare_set", client.compare_set("none", "x", "z", soon()));
}

void talk_of_many(StoreClient& client) {
  client.append("ap", "12", soon());
  client.append("ap", "3", soon());
  say("get ap", client.get("ap", soon()));
  client.set_many({"m1", "m2"}, {"x", "yy"}, soon());
  for (const auto& value : client.get_many({"m2", "m1"}, soon())) say("get_many", value);
  const std::string large(kLongestValue, 'x');
  client.set("large", large, soon());
  say("large", client.get("large", soon()) == large);
  say("erase", client.erase("large", soon()));
  say("erase", client.erase("large", soon()));
  say("register_client", client.register_client(soon()));
  auto keys = client.keys(soon());
  std::sort(keys.begin(), keys.end());
  for (const auto& key : keys) say("key", key);
  client.ping(soon());
}

void talk_of_queues(StoreClient& client) {
  say("pop", client.pop("q", soon()).value_or("(empty)"));
  client.push("q", "one", soon());
  client.push("q", "two", soon());
  say("length", client.length("q", soon()));
  say("pop", client.pop("q", soon()).value_or("(empty)"));
  say("pop", client.pop("q", soon()).value_or("(empty)"));
  say("length", client.length("q", soon()));
}

void talk_with_python(StoreClient& client) {
  const std::string text = client.get("from/python", soon());
  say("from python:", text + " " + std::to_string(client.add("count", 1, soon())));
  client.set("from/lockstep", "hello back", soon());
  client.ping(soon());
}

void talk_of_control(const Address& address, const std::string& secret) {
  try {
    connect_control({address}, secret, soon());
    say("control", "connected");
  } catch (const ControlError& error) {
    say("control", error.failure() == ControlFailure::plain_store ? "plain_store" : error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 2, argv + argc);
  const auto said = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  StoreClientOptions options;
  for (const auto& word : words) {
    if (word.starts_with("secret=")) options.secret = word.substr(7);
  }
  const Address address = Address::loopback(static_cast<std::uint16_t>(std::atoi(argv[1])));
  StoreClient client({address}, options, soon());
  say("proven", client.proven());
  talk_of_values(client);
  talk_of_many(client);
  if (said("queues")) talk_of_queues(client);
  if (said("python")) talk_with_python(client);
  if (!options.secret.empty()) talk_of_control(address, options.secret);
}
