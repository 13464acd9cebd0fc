#include "call_site.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace lockstep::comm {
namespace {

std::string hexadecimal(std::uintptr_t number) {
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "+0x%zx", static_cast<std::size_t>(number));
  return text.data();
}

std::string_view file_name(const char* path) {
  const std::string_view text = path == nullptr ? "" : path;
  return text.substr(text.rfind('/') + 1);
}

bool is_of_a_library(std::string_view file) {
  for (const auto* name :
       {"liblockstep", "libtorch", "libc10", "libc.so", "libstdc++", "libpthread", "libgomp"}) {
    if (file.starts_with(name)) return true;
  }
  return false;
}

std::string demangled(const char* name) {
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, nullptr),
                                                         &std::free);
  return text ? text.get() : name;
}

std::string text_of(const Dl_info& info, const void* address) {
  const std::string file(file_name(info.dli_fname));
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  if (info.dli_sname == nullptr)
    return file + hexadecimal(place - reinterpret_cast<std::uintptr_t>(info.dli_fbase));
  return demangled(info.dli_sname) + hexadecimal(place - reinterpret_cast<std::uintptr_t>(info.dli_saddr)) +
         " in " + file;
}

}  // namespace

std::string call_site() {
  std::array<void*, 96> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    const void* address = frames[static_cast<std::size_t>(i)];
    if (dladdr(address, &info) == 0 || is_of_a_library(file_name(info.dli_fname))) continue;
    return text_of(info, address);
  }
  return "";
}

}  // namespace lockstep::comm
