#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

/// What a signal handler may use: no memory is allocated, no lock taken.
namespace lockstep::signal_safe {

/// Writes all of it, as far as it goes.
void put(int descriptor, std::string_view text) noexcept;
void put_number(int descriptor, std::uint64_t number) noexcept;
void put_hex(int descriptor, std::uint64_t number) noexcept;

/// A text of limited length; what does not fit is left out. Always terminated.
class Text {
 public:
  Text& add(std::string_view part) noexcept;
  Text& add_number(std::uint64_t number) noexcept;
  const char* c_str() const noexcept { return letters_; }
  std::string_view view() const noexcept { return {letters_, length_}; }

 private:
  char letters_[512] = {};
  std::size_t length_ = 0;
};

/// The name of a thread of this process, as `ps` shows it.
Text thread_name(pid_t thread) noexcept;

void sleep_milliseconds(int count) noexcept;

}  // namespace lockstep::signal_safe
