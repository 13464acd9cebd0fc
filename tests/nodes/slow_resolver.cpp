// Loaded into a launcher by LD_PRELOAD: the name "slow-host" is looked up for a minute, as by a name server
// that is down. Files tell when it was asked for and answered. The name "late-host" is not known until the
// file LATE_RESOLVER_FILE is there, which has its address, as that of a pod that starts.

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

void touch(const char* variable) {
  const char* path = std::getenv(variable);
  if (path != nullptr) close(open(path, O_WRONLY | O_CREAT, 0600));
}

}  // namespace

extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!numeric && node != nullptr && std::strcmp(node, "late-host") == 0) {
    const char* path = std::getenv("LATE_RESOLVER_FILE");
    std::ifstream file(path == nullptr ? "" : path);
    std::string address;
    return file >> address ? real(address.c_str(), service, hints, result) : EAI_NONAME;
  }
  if (numeric || node == nullptr || std::strcmp(node, "slow-host") != 0)
    return real(node, service, hints, result);
  touch("SLOW_RESOLVER_ASKED");
  sleep(60);
  touch("SLOW_RESOLVER_ANSWERED");
  return EAI_AGAIN;
}
