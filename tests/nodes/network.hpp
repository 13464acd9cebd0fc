#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Several hosts on one machine: network, host name and /etc/hosts of their own for each, joined by a bridge
/// that only they see. The file system and the processes are this machine's. All of it goes with the object,
/// or with this process, however it ends. Needs root.
///
/// Host i is called "node<i>" and has the address 10.77.0.<i + 1>.
class Network {
 public:
  /// Whether this process may make such hosts.
  static bool possible();

  explicit Network(int hosts);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  static std::string name(int host) { return "node" + std::to_string(host); }

  /// To be called in a child process before exec: it becomes a process of that host.
  std::function<void()> enter(int host) const;

  /// Takes the host's cable out and puts it back.
  void cut(int host) const;
  void heal(int host) const;

 private:
  /// A process that does nothing but keep a set of namespaces alive.
  pid_t start_holder(const std::string& host_name) const;
  void in_switch(const std::vector<std::string>& words) const;

  std::string hosts_file_;
  pid_t switch_ = 0;
  std::vector<pid_t> hosts_;
};

}  // namespace lockstep::launch
