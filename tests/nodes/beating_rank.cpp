// A rank that beats as ranks of the library do: all wait for the one whose number is the first argument,
// which works and never comes. It leaves its pid in the folder of the second argument. "leave" instead of a
// number: it beats and ends with success; "work": it beats for three seconds of its own before that. With a
// third argument those that wait give up.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"
#include "lockstep/core/runtime/program.hpp"

namespace {

void note_pid(const std::string& file) {
  const std::string unfinished = file + "." + std::to_string(getpid());
  std::FILE* out = std::fopen(unfinished.c_str(), "w");
  if (out == nullptr) std::exit(3);
  std::fprintf(out, "%d\n", getpid());
  if (std::fclose(out) != 0 || std::rename(unfinished.c_str(), file.c_str()) != 0) std::exit(3);
}

}  // namespace

/// Seen from outside, so that a stack can name it.
[[noreturn, gnu::noinline]] void hang_for_ever() {
  for (;;) pause();
}

int main(int argc, char** argv) {
  return lockstep::run_program("beating_rank", [&] {
    const auto rank = lockstep::find_variable(lockstep::process_environment(), "RANK").value_or("0");
    auto& heartbeat = lockstep::process_heartbeat();
    if (argc < 3) return 2;
    if (std::string(argv[1]) == "leave") {
      heartbeat.working("evaluation");
      return 0;
    }
    if (std::string(argv[1]) == "work") {
      note_pid(std::string(argv[2]) + "/" + rank);
      for (int i = 0; i < 30; ++i) {
        heartbeat.working("evaluation");
        usleep(100'000);
      }
      return 0;
    }
    if (rank == argv[1]) {
      heartbeat.working("evaluation");
      note_pid(std::string(argv[2]) + "/" + rank);
      hang_for_ever();
    }
    const lockstep::Heartbeat::Waiting waiting(heartbeat, "all_reduce", 412);
    note_pid(std::string(argv[2]) + "/" + rank);
    if (argc == 4) throw lockstep::TimeoutError("all_reduce #412 timed out");
    hang_for_ever();
  });
}
