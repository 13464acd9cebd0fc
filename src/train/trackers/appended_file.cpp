#include "appended_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "lockstep/core/error.hpp"

namespace lockstep {

AppendedFile::AppendedFile(std::filesystem::path path) : path_(std::move(path)) {
  do {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail("open");
}

AppendedFile::~AppendedFile() { ::close(descriptor_); }

void AppendedFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto done = ::write(descriptor_, bytes.data(), bytes.size());
    if (done < 0 && errno != EINTR) fail("write to");
    if (done > 0) bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

void AppendedFile::fail(const char* what) const {
  throw Error(std::string("cannot ") + what + " '" + path_.string() +
              "': " + std::generic_category().message(errno) +
              ". Check the folder, the free space and the permissions.");
}

}  // namespace lockstep
