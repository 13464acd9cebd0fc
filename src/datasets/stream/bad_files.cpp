#include "datasets/stream/bad_files.hpp"

#include <algorithm>

namespace lockstep::stream {

BadFiles::Known& BadFiles::record_of(const std::filesystem::path& file) {
  const auto found =
      std::find_if(files_.begin(), files_.end(), [&](const Known& known) { return known.file.path == file; });
  return found != files_.end() ? *found : files_.emplace_back(Known{{.path = file}});
}

void BadFiles::add(const std::filesystem::path& file, const std::string& reason) {
  const std::lock_guard guard(lock_);
  auto& entry = record_of(file).file;
  if (entry.is_abandoned) return;
  entry.is_abandoned = true;
  entry.reason = reason;
}

void BadFiles::add_line(const std::filesystem::path& file, std::int64_t line, const std::string& reason) {
  const std::lock_guard guard(lock_);
  auto& entry = record_of(file);
  if (line <= entry.last_line) return;
  entry.last_line = line;
  if (entry.file.bad_lines++ == 0 && !entry.file.is_abandoned) entry.file.reason = reason;
}

std::vector<BadFile> BadFiles::list() const {
  const std::lock_guard guard(lock_);
  std::vector<BadFile> files;
  for (const auto& entry : files_) files.push_back(entry.file);
  return files;
}

}  // namespace lockstep::stream
