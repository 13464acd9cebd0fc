#include "plan/names.hpp"

#include <algorithm>
#include <random>

namespace lockstep::launch {

std::string random_id(int length) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id;
  for (int i = 0; i < length; ++i) id += kDigits[random() % 16];
  return id;
}

std::string file_name(std::string text) {
  std::replace(text.begin(), text.end(), '/', '_');
  return text;
}

}  // namespace lockstep::launch
