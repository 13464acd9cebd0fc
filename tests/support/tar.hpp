#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <vector>

namespace lockstep::testing {

/// What a header of a tar file is made of; the checksum is right.
struct Member {
  std::string name;
  std::string data = {};
  char type = '0';
  /// Instead of the data's.
  std::string size = {};
};

inline std::string header_of(const Member& member) {
  std::string block(512, '\0');
  const auto put = [&](std::size_t place, const std::string& text) {
    block.replace(place, text.size(), text);
  };
  std::array<char, 12> size{};
  std::snprintf(size.data(), size.size(), "%011zo", member.data.size());
  put(0, member.name.substr(0, 100));
  put(100, "0000644");
  put(124, member.size.empty() ? std::string(size.data(), 11) : member.size);
  put(148, "        ");
  block[156] = member.type;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%06o", sum);
  put(148, std::string(digits.data(), 7));
  return block;
}

inline std::string padded(const std::string& data) {
  return data + std::string((512 - data.size() % 512) % 512, '\0');
}

inline std::string tar_of(const std::vector<Member>& members, std::size_t zeros = 1024) {
  std::string text;
  for (const auto& member : members) text += header_of(member) + padded(member.data);
  return text + std::string(zeros, '\0');
}

}  // namespace lockstep::testing
