#include <fcntl.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fstream>

#include "core/file_system.hpp"
#include "core/option_values.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "train/trackers/line_file.hpp"

namespace lockstep {

AppendedFile::AppendedFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(file_system::uninterrupted([&] {
        return ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
      })) {
  if (!descriptor_) fail("open", errno);
}

void AppendedFile::append(std::string_view bytes) {
  if (const int error = file_system::write_all(descriptor_.get(), bytes)) fail("write to", error);
}

void AppendedFile::fail(const char* what, int error) const {
  throw Error(std::string("cannot ") + what + " '" + path_.string() + "': " + file_system::reason(error) +
              ". Check the folder, the free space and the permissions.");
}

namespace fs = std::filesystem;

namespace {

/// The offset after the last line break.
std::uintmax_t end_of_lines(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 1 << 16> piece{};
  std::uintmax_t place = 0;
  std::uintmax_t end = 0;
  do {
    file.read(piece.data(), piece.size());
    const std::string_view text(piece.data(), static_cast<std::size_t>(file.gcount()));
    const auto last = text.rfind('\n');
    if (last != std::string_view::npos) end = place + last + 1;
    place += text.size();
  } while (file);
  return end;
}

}  // namespace

LineFile::LineFile(fs::path path) : path_(std::move(path)) {
  drop_torn_line();
  file_.emplace(path_);
}

void LineFile::drop_torn_line() const {
  std::error_code failure;
  if (!fs::exists(path_, failure)) return;
  fs::resize_file(path_, end_of_lines(path_), failure);
  if (failure) throw Error("cannot continue '" + path_.string() + "': " + failure.message());
}

void LineFile::add(std::string_view line) { file_->append(std::string(line) + "\n"); }

void LineFile::rewrite(const std::function<std::optional<std::string>(std::string_view)>& change) {
  std::ifstream old(path_, std::ios::binary);
  AtomicFile fresh(path_);
  for (std::string line; std::getline(old, line);) {
    const auto changed = change(line);
    if (changed) fresh.write(*changed + "\n");
  }
  fresh.commit();
  file_.emplace(path_);
}

std::string LineFile::first_line() const {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  std::getline(file, line);
  return line;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string value_text(double number) {
  // Drops the sign of a NaN, which is meaningless; 0.0 / 0.0 has one.
  return std::isnan(number) ? "nan" : number_text(number);
}

}  // namespace lockstep
