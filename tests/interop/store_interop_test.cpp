#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "interop/python.hpp"
#include "lockstep/comm/store.hpp"

namespace lockstep {
namespace {

using std::chrono::seconds;

int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* name = reinterpret_cast<sockaddr*>(&address);
  EXPECT_TRUE(bind(listener, name, size) == 0 && getsockname(listener, name, &size) == 0);
  close(listener);
  return ntohs(address.sin_port);
}

World world_of(int rank, int port) {
  World world;
  world.rank = world.local_rank = rank;
  world.world_size = world.local_world_size = 2;
  world.master_addr = "127.0.0.1";
  world.master_port = static_cast<std::uint16_t>(port);
  // Python can prove nothing; here it need not, being of this host and user.
  world.job_token = "the job's token";
  return world;
}

/// Both sides set "from/<who>" to "hello" and wait for the other's.
void exchange(int rank, const std::string& python_is) {
  const int port = free_port();
  std::string said;
  std::thread python([&] { said = testing::run_python("store_peer.py", {python_is, std::to_string(port)}); });
  {
    const Store store = Store::connect(world_of(rank, port), seconds(60));
    store.set("from/lockstep", "hello");
    EXPECT_EQ(store.get("from/python", seconds(60)), "hello");
    EXPECT_EQ(store.get("python/left", seconds(60)), "1");
  }
  python.join();
  EXPECT_EQ(said, "hello\n");
}

TEST(StoreInterop, APythonRankJoinsAStoreOfOurs) { exchange(0, "client"); }

TEST(StoreInterop, OurRankJoinsAStoreOfPython) { exchange(1, "server"); }

}  // namespace
}  // namespace lockstep
