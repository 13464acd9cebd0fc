#include "shm/peer_address.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "core/host_name.hpp"
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

std::string boot_id() {
  std::string line;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> line;
  return line;
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

std::string host_identity() {
  struct stat network {};
  stat("/proc/self/ns/net", &network);
  return fmt::format("{}/{}/{}", boot_id(), network.st_ino, geteuid());
}

PeerAddress PeerAddress::make(const std::string& host, int threads) {
  return {host.empty() ? host_identity() : host,
          lockstep::host_name(),
          "lockstep-" + random_word(),
          random_word(),
          {allowed_cpus(), threads}};
}

PeerAddress PeerAddress::read(const std::string& text) {
  PeerAddress address;
  std::string cpus, threads;
  read_lines(text, {&address.host, &address.host_name, &address.socket, &address.secret, &cpus, &threads});
  address.processors.cpus = parse_cpu_list(cpus);
  address.processors.threads = std::clamp(std::atoi(threads.c_str()), 1, kMostThreads);
  return address;
}

std::string PeerAddress::text() const {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", host, host_name, socket, secret,
                     cpu_list_text(processors.cpus), processors.threads);
}

ConnectReport ConnectReport::read(const std::string& text) {
  ConnectReport report;
  read_lines(text, {&report.reached, &report.trouble, &report.failure});
  return report;
}

std::string ConnectReport::text() const {
  return fmt::format("{}\n{}\n{}", reached, one_line(trouble), one_line(failure));
}

}  // namespace lockstep::shm
