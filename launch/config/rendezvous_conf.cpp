#include "config/rendezvous_conf.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

/// Longer than any job; keeps sums of times in range.
constexpr double kLongest = 1e9;

std::string_view stripped(std::string_view text, std::string_view blanks = " \t\r\n") {
  const auto first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Without the quotes that a shell leaves in `--rdzv-conf="'a=1'"`.
std::string_view unquoted(std::string_view text) {
  text = stripped(text);
  const bool quoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"');
  return quoted && text.back() == text.front() ? text.substr(1, text.size() - 2) : text;
}

UsageError refusal(std::string_view item, const std::string& expected) {
  return UsageError("--rdzv-conf '" + std::string(item) + "': expected " + expected + ".");
}

double number_of(std::string_view item, std::string_view value) {
  double number = 0;
  const char* end = value.data() + value.size();
  const auto [stop, failure] = std::from_chars(value.data(), end, number);
  if (failure != std::errc() || stop != end || !(number >= 0) || number > kLongest) {
    throw refusal(item, "a number of at least 0 behind the sign '='");
  }
  return number;
}

bool truth_of(std::string_view item, std::string_view value) {
  std::string word(value);
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const auto* yes : {"1", "true", "t", "yes", "y"}) {
    if (word == yes) return true;
  }
  for (const auto* no : {"0", "false", "f", "no", "n"}) {
    if (word == no) return false;
  }
  throw refusal(item, "true or false behind the sign '='");
}

struct TimeKey {
  std::string_view name;
  RendezvousTimes::Time RendezvousTimes::*field;
};

constexpr std::array<TimeKey, 8> kTimes{{
    {"join_timeout", &RendezvousTimes::join_timeout},
    {"last_call_timeout", &RendezvousTimes::last_call_timeout},
    {"close_timeout", &RendezvousTimes::close_timeout},
    {"heartbeat_timeout", &RendezvousTimes::heartbeat_timeout},
    {"heartbeat", &RendezvousTimes::heartbeat_timeout},
    {"keep_alive_interval", &RendezvousTimes::keep_alive_interval},
    {"read_timeout", &RendezvousTimes::read_timeout},
    {"timeout", &RendezvousTimes::timeout},
}};

bool read_time(std::string_view item, std::string_view key, std::string_view value, RendezvousTimes& times) {
  const auto* found =
      std::find_if(kTimes.begin(), kTimes.end(), [&](const TimeKey& time) { return time.name == key; });
  if (found == kTimes.end()) return false;
  times.*found->field = RendezvousTimes::Time(std::llround(number_of(item, value) * 1000));
  return true;
}

/// A file cannot tell the nodes that one of them is gone.
void require_tcp_store(std::string_view item, std::string_view value) {
  if (value == "tcp") return;
  throw refusal(item, "store_type=tcp, as the nodes meet at an address and not in a file; leave it out");
}

void read_item(std::string_view item, RendezvousConfig& config, std::vector<std::string>& notices) {
  const auto equals = std::min(item.find('='), item.size());
  const auto key = stripped(item.substr(0, equals));
  const auto value = stripped(item.substr(std::min(equals + 1, item.size())));
  if (key.empty() || value.empty()) throw refusal(item, "KEY=VALUE,KEY=VALUE,...");
  if (read_time(item, key, value, config.times)) return;
  if (key == "keep_alive_max_attempt") {
    config.times.keep_alive_max_attempt = static_cast<int>(std::clamp(number_of(item, value), 1.0, 1e6));
  } else if (key == "is_host") {
    config.is_host = truth_of(item, value);
  } else if (key == "store_type") {
    require_tcp_store(item, value);
  } else if (key == "rank") {
    notices.push_back("--rdzv-conf: 'rank' means nothing, give --node-rank");
  } else {
    notices.push_back("--rdzv-conf: '" + std::string(key) + "' means nothing here and is passed over");
  }
}

}  // namespace

void read_rendezvous_conf(const std::string& text, RendezvousConfig& config,
                          std::vector<std::string>& notices) {
  std::string_view rest = unquoted(text);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    read_item(stripped(rest.substr(0, comma)), config, notices);
    if (comma == std::string_view::npos) return;
    rest.remove_prefix(comma + 1);
    if (rest.empty()) throw refusal(text, "KEY=VALUE behind the last comma");
  }
}

}  // namespace lockstep::launch
