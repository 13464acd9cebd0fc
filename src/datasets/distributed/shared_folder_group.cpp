#include "datasets/distributed/shared_folder_group.hpp"

#include <fmt/core.h>

#include <fstream>
#include <system_error>

#include "core/text.hpp"
#include "net/sha256.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = ".probe-";
/// The point at which a rank has looked for the others' files.
constexpr char kLooked[] = "looked";
constexpr std::size_t kTokenBytes = 12;
/// A file this old is left over from a killed process.
constexpr std::chrono::hours kOld{24};

std::string probe_key(int rank) { return fmt::format("probe/{}", rank); }

void remove_old_tokens(const fs::path& folder) {
  std::error_code failure;
  for (const auto& each : fs::directory_iterator(folder, failure)) {
    if (!each.path().filename().string().starts_with(kPrefix)) continue;
    std::error_code gone;
    const auto age = fs::file_time_type::clock::now() - each.last_write_time(gone);
    if (!gone && age > kOld) fs::remove(each.path(), gone);
  }
}

}  // namespace

SharedFolderProbe::SharedFolderProbe(WorkSession& session, fs::path folder)
    : session_(session), folder_(std::move(folder)) {
  if (!session_.ranks().alone()) {
    group_.leader = find_leader();
    session_.arrive(kLooked);
  }
  group_.leads = group_.leader == session_.ranks().rank;
  group_.prefix = fmt::format("shared_folder/{}/", group_.leader);
}

SharedFolderProbe::~SharedFolderProbe() {
  std::error_code ignored;
  if (!token_.empty()) fs::remove(token_, ignored);
}

/// Writes this rank's file into the folder and returns its name; empty if the folder cannot be written.
std::string SharedFolderProbe::write_token() {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  const std::string name = kPrefix + format_hex(net::random_bytes(kTokenBytes));
  if (failure || !(std::ofstream(folder_ / name) << name << std::flush)) return "";
  token_ = folder_ / name;
  return name;
}

bool SharedFolderProbe::sees(const std::string& token) const {
  if (token.empty()) return false;
  std::ifstream file(folder_ / token);
  std::string name;
  return file >> name && name == token;
}

int SharedFolderProbe::find_leader() {
  const int rank = session_.ranks().rank;
  auto& store = session_.store();
  if (rank == 0) remove_old_tokens(folder_);
  const std::string first = rank == 0 ? write_token() : session_.await(probe_key(0), 0);
  const bool found = rank != 0 && sees(first);
  if (rank == 0) store.set(session_.key(probe_key(0)), first);
  // "0" is not a token: it means that this rank belongs to rank 0's group.
  if (rank != 0) store.set(session_.key(probe_key(rank)), found ? "0" : write_token());
  if (rank == 0 || found) return 0;
  for (int other = 1; other < rank; ++other) {
    if (sees(session_.await(probe_key(other), other))) return other;
  }
  return rank;
}

void SharedFolderProbe::wait_for_all() {
  if (token_.empty()) return;
  session_.await_all(kLooked, "ranks that have not arrived yet");
}

}  // namespace lockstep
