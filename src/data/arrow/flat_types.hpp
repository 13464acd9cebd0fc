#pragma once

#include <cstdint>

namespace lockstep::arrow_file::flat {

// The numbers of Arrow's Schema.fbs and Message.fbs.

enum Type : std::uint8_t {
  kNull = 1,
  kInt = 2,
  kFloatingPoint = 3,
  kBinary = 4,
  kUtf8 = 5,
  kBool = 6,
  kDate = 8,
  kTime = 9,
  kTimestamp = 10,
  kList = 12,
  kStruct = 13,
  kFixedSizeBinary = 15,
  kFixedSizeList = 16,
  kMap = 17,
  kDuration = 18,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
};

enum Header : std::uint8_t { kSchema = 1, kDictionaryBatch = 2, kRecordBatch = 3 };

/// MetadataVersion.V5, which Arrow has written since 1.0; V4 differs in unions only.
inline constexpr std::int16_t kVersion5 = 4;
inline constexpr std::int16_t kVersion4 = 3;

}  // namespace lockstep::arrow_file::flat
