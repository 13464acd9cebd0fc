#include "shm/peer_address.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

#include "core/host_name.hpp"
#include "shm/host.hpp"
#include "shm/segment.hpp"

namespace lockstep::shm {
namespace {

constexpr int kMostThreads = 1 << 16;

std::string random_word() {
  std::array<unsigned char, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  std::string word;
  for (const auto byte : bytes) {
    word += "0123456789abcdef"[byte >> 4];
    word += "0123456789abcdef"[byte & 15];
  }
  return word;
}

void read_lines(const std::string& text, std::initializer_list<std::string*> fields) {
  std::istringstream lines(text);
  for (auto* field : fields) std::getline(lines, *field);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

PeerAddress PeerAddress::make(const std::string& host, int threads) {
  return {host.empty() ? host_identity() : host,
          lockstep::host_name(),
          "lockstep-" + random_word(),
          random_word(),
          {own_cpus(), threads}};
}

PeerAddress PeerAddress::read(const std::string& text) {
  PeerAddress address;
  std::string threads;
  read_lines(text, {&address.host, &address.host_name, &address.socket, &address.secret,
                    &address.processors.cpus, &threads});
  address.processors.threads = std::clamp(std::atoi(threads.c_str()), 1, kMostThreads);
  return address;
}

std::string PeerAddress::text() const {
  return host + '\n' + host_name + '\n' + socket + '\n' + secret + '\n' + processors.cpus + '\n' +
         std::to_string(processors.threads);
}

ConnectReport ConnectReport::read(const std::string& text) {
  ConnectReport report;
  read_lines(text, {&report.reached, &report.trouble, &report.failure});
  return report;
}

std::string ConnectReport::text() const {
  return reached + '\n' + one_line(trouble) + '\n' + one_line(failure);
}

}  // namespace lockstep::shm
