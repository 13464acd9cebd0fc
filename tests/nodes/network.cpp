#include "network.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace lockstep::launch {
namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS;

int run(const std::vector<std::string>& words, const std::function<void()>& in_child) {
  std::vector<char*> pointers;
  for (const auto& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    in_child();
    execvp(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void enter_namespaces(pid_t holder) {
  for (const char* kind : {"net", "uts", "mnt"}) {
    const std::string path = "/proc/" + std::to_string(holder) + "/ns/" + kind;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0 || setns(file, 0) != 0) _exit(126);
    close(file);
  }
}

/// The life of a holder. Never returns.
[[noreturn]] void hold(const std::string& host_name, const std::string& hosts_file, int ready) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool made = unshare(kNamespaces) == 0 && sethostname(host_name.c_str(), host_name.size()) == 0 &&
                    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount(hosts_file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
  const char answer = made ? 'y' : 'n';
  if (write(ready, &answer, 1) != 1 || !made) _exit(1);
  close(ready);
  for (;;) pause();
}

void end(pid_t holder) {
  if (holder <= 0) return;
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
}

}  // namespace

bool Network::possible() {
  if (geteuid() != 0) return false;
  return run({"true"}, [] {
           if (unshare(kNamespaces) != 0) _exit(1);
         }) == 0;
}

Network::Network(int hosts) {
  char path[] = "/tmp/lockstep-test-hosts-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0) throw std::runtime_error("no temporary file");
  close(file);
  hosts_file_ = path;
  std::ofstream text(hosts_file_);
  text << "127.0.0.1 localhost\n";
  for (int i = 0; i < hosts; ++i) text << address(i) << ' ' << name(i) << '\n';
  text.close();

  switch_ = start_holder("switch");
  in_switch({"ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0"});
  in_switch({"ip", "link", "set", "br0", "up"});
  for (int i = 0; i < hosts; ++i) {
    const pid_t holder = start_holder(name(i));
    hosts_.push_back(holder);
    const auto in_host = [&](const std::vector<std::string>& words) {
      if (run(words, [&] { enter_namespaces(holder); }) != 0)
        throw std::runtime_error("failed: " + words[0] + " " + words[1]);
    };
    in_switch({"ip", "link", "add", name(i), "type", "veth", "peer", "name", "eth0", "netns",
               std::to_string(holder)});
    in_switch({"ip", "link", "set", name(i), "master", "br0", "up"});
    in_host({"ip", "addr", "add", address(i) + "/24", "dev", "eth0"});
    in_host({"ip", "link", "set", "eth0", "up"});
    in_host({"ip", "link", "set", "lo", "up"});
  }
}

Network::~Network() {
  for (const pid_t holder : hosts_) end(holder);
  end(switch_);
  unlink(hosts_file_.c_str());
}

pid_t Network::start_holder(const std::string& host_name) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t holder = fork();
  if (holder == 0) hold(host_name, hosts_file_, ends[1]);
  close(ends[1]);
  char answer = 'n';
  const bool ready = read(ends[0], &answer, 1) == 1 && answer == 'y';
  close(ends[0]);
  if (ready) return holder;
  end(holder);
  throw std::runtime_error("cannot make a host of its own namespaces");
}

void Network::in_switch(const std::vector<std::string>& words) const {
  const pid_t holder = switch_;
  if (run(words, [&] { enter_namespaces(holder); }) != 0)
    throw std::runtime_error("failed: ip " + words[1] + " " + words[2]);
}

std::function<void()> Network::enter(int host) const {
  return [holder = hosts_[static_cast<std::size_t>(host)]] { enter_namespaces(holder); };
}

void Network::cut(int host) const { in_switch({"ip", "link", "set", name(host), "down"}); }
void Network::heal(int host) const { in_switch({"ip", "link", "set", name(host), "up"}); }

}  // namespace lockstep::launch
