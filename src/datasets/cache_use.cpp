#include "datasets/cache_use.hpp"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/file_system.hpp"
#include "lockstep/core/process_identity.hpp"
#include "lockstep/datasets/cache_folder.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "use.";
/// Longer than most jobs run: what a killed process of another host holds back.
constexpr std::chrono::hours kDay{24};

std::optional<ProcessIdentity> reader_of(const fs::path& file) {
  std::ifstream stream(file);
  const auto json = nlohmann::json::parse(stream, nullptr, false);
  try {
    return json.get<ProcessIdentity>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

/// Whether the process behind a mark still reads.
bool reads(const fs::path& mark) {
  const auto reader = reader_of(mark);
  const Liveness liveness = reader ? liveness_of(*reader) : Liveness::unknown;
  if (liveness != Liveness::unknown) return liveness == Liveness::alive;
  std::error_code gone;
  const auto time = fs::last_write_time(mark, gone);
  return !gone && fs::file_time_type::clock::now() - time < kDay;
}

}  // namespace

bool is_read(const fs::path& entry) {
  bool found = false;
  std::error_code failure;
  for (const auto& file : fs::directory_iterator(entry, failure)) {
    if (!file.path().filename().string().starts_with(kPrefix)) continue;
    if (reads(file.path())) {
      found = true;
    } else {
      ::unlink(file.path().c_str());
    }
  }
  return found;
}

fs::file_time_type last_use_of(const fs::path& entry, std::error_code& failure) {
  // Not the folder's own time, which marks that come and go change.
  return fs::last_write_time(entry / "manifest.json", failure);
}

/// The file, for as long as it lives.
struct CacheUse::Mark {
  explicit Mark(const fs::path& entry) : creator(getpid()) {
    static std::atomic<unsigned> counter{0};
    const ProcessIdentity self = this_process();
    file = entry / (kPrefix + self.host + "." + std::to_string(self.pid) + "." + std::to_string(counter++));
    std::ofstream(file) << nlohmann::json(self).dump() << '\n';
    ::utimensat(AT_FDCWD, (entry / "manifest.json").c_str(), nullptr, 0);
  }
  /// A forked child has copies of the mark, which is not its own.
  ~Mark() {
    if (getpid() == creator) ::unlink(file.c_str());
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  fs::path file;
  pid_t creator;
};

CacheUse::CacheUse(const fs::path& entry) : mark_(std::make_shared<Mark>(entry)) {}

}  // namespace lockstep
