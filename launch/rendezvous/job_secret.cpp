#include "rendezvous/job_secret.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"
#include "net/sha256.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

constexpr std::size_t kLeastToken = 16;
constexpr std::size_t kKeyBytes = 32;

UsageError no_key(const std::string& what) {
  return UsageError(
      what +
      " The launchers of several nodes need a common secret: export the same LOCKSTEP_JOB_TOKEN (16 "
      "characters or more, as from 'openssl rand -hex 32') to all of them.");
}

std::string key_file(const Environment& environment) {
  const auto config = find_variable(environment, "XDG_CONFIG_HOME").value_or("");
  const auto home = find_variable(environment, "HOME").value_or("");
  if (config.empty() && home.empty()) throw no_key("neither HOME nor XDG_CONFIG_HOME is set.");
  return (config.empty() ? home + "/.config" : config) + "/lockstep/key";
}

/// Creates the key under another name and links it into place: if several nodes do this at once, one of them
/// wins, and a partial key is never read. An existing key is not an error.
void make_key(const std::string& path) {
  std::error_code failure;
  const auto folder = std::filesystem::path(path).parent_path();
  std::filesystem::create_directories(folder, failure);
  if (failure) throw no_key("cannot make the folder '" + folder.string() + "': " + failure.message() + ".");
  const std::string draft = path + "." + format_hex(net::random_bytes(8));
  const net::FileDescriptor file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const std::string key = format_hex(net::random_bytes(kKeyBytes)) + "\n";
  const bool written = file &&
                       write(file.get(), key.data(), key.size()) == static_cast<ssize_t>(key.size()) &&
                       fsync(file.get()) == 0 && (link(draft.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(draft.c_str());
  if (!written) throw no_key("cannot write the key file '" + path + "': " + std::strerror(error) + ".");
}

/// The key; empty if there is none yet.
std::string read_key(const std::string& path) {
  const net::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return "";
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0)
    throw no_key("cannot read the key file '" + path + "': " + std::strerror(errno) + ".");
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0)
    throw no_key("the key file '" + path +
                 "' is not a file of this user that only its owner may read (chmod 600).");
  std::array<char, 2 * kKeyBytes> key{};
  if (read(file.get(), key.data(), key.size()) != static_cast<ssize_t>(key.size()))
    throw no_key("the key file '" + path + "' is too short; remove it, and a new one is created.");
  return {key.data(), key.size()};
}

/// The job id of the scheduler.
std::string scheduler_job(const Environment& environment) {
  for (const char* name : {"SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID"}) {
    if (const auto value = find_variable(environment, name)) return std::string(name) + "=" + *value;
  }
  return "";
}

}  // namespace

JobSecret JobSecret::generate() { return {format_hex(net::random_bytes(kKeyBytes)), "a secret of its own"}; }

JobSecret JobSecret::none(const std::string& run_id) {
  return {format_hex(net::hmac_sha256("lockstep job without a secret", run_id)),
          "this launcher was started with --no-job-secret: give it on every node or on none", true};
}

JobSecret JobSecret::from_env(const std::string& run_id, const Environment& environment) {
  if (const auto token = find_variable(environment, "LOCKSTEP_JOB_TOKEN"); token && !token->empty()) {
    if (token->size() < kLeastToken)
      throw formatted<UsageError>(
          "LOCKSTEP_JOB_TOKEN has {} characters: expected 16 or more, as from 'openssl rand -hex 32'.",
          token->size());
    return {*token, "this launcher uses LOCKSTEP_JOB_TOKEN: export the same one on every node"};
  }
  const std::string path = key_file(environment);
  std::string key = read_key(path);
  if (key.empty()) {
    make_key(path);
    key = read_key(path);
  }
  if (key.empty()) throw no_key("the key file '" + path + "' cannot be read yet: try again.");
  const std::string secret =
      net::hmac_sha256(key, "lockstep job\n" + run_id + "\n" + scheduler_job(environment));
  return {
      format_hex(secret),
      fmt::format(
          "this launcher uses the key in {} and the run id '{}'. Nodes that do not share this home need a "
          "common secret: export the same LOCKSTEP_JOB_TOKEN on every node (16 characters or more, as from "
          "'openssl rand -hex 32'), or give --no-job-secret on every node where the network is trusted",
          path, run_id)};
}

}  // namespace lockstep::launch
