#include "net/sha256.hpp"

#include <gtest/gtest.h>

#include <sstream>

#include "core/text.hpp"
#include "interop/python.hpp"

namespace lockstep::net {
namespace {

// FIPS 180-4's examples and the longer ones of NIST's validation list.
TEST(Sha256, GivesThePublishedValues) {
  EXPECT_EQ(format_hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(format_hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(format_hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(format_hex(sha256(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (const std::size_t piece : {1, 3, 63, 64, 65, 127, 300}) {
    Sha256 hash;
    for (std::size_t at = 0; at < text.size(); at += piece)
      hash.update(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hash.finish(), sha256(text)) << piece;
  }
}

// RFC 4231, test cases 1, 2, 3, 6 and 7.
TEST(Hmac, GivesThePublishedValues) {
  EXPECT_EQ(format_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(format_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(format_hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(format_hex(hmac_sha256(std::string(131, '\xaa'),
                                   "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(format_hex(hmac_sha256(
                std::string(131, '\xaa'),
                "This is a test using a larger than block-size key and a larger than block-size data. "
                "The key needs to be hashed before being used by the HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

std::string unhex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// Lines "key message digest hmac", all in hexadecimal; "-" stands for nothing.
TEST(Sha256, AgreesWithPythonOnRandomInputs) {
  std::istringstream lines(testing::run_python("digests.py"));
  int count = 0;
  for (std::string key, message, digest, proof; lines >> key >> message >> digest >> proof; ++count) {
    key = unhex(key), message = unhex(message);
    EXPECT_EQ(format_hex(sha256(message)), digest);
    EXPECT_EQ(format_hex(hmac_sha256(key, message)), proof);
  }
  EXPECT_EQ(count, 500);
}

TEST(Secrets, AreComparedWhole) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
}

TEST(Secrets, AreRandom) {
  EXPECT_EQ(random_bytes(0), "");
  EXPECT_EQ(random_bytes(1000).size(), 1000U);
  EXPECT_NE(random_bytes(32), random_bytes(32));
  EXPECT_EQ(format_hex(std::string("\x00\x9f\xff", 3)), "009fff");
}

}  // namespace
}  // namespace lockstep::net
