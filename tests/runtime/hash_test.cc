#include "runtime/base/hash.h"

#include <gtest/gtest.h>

namespace dorajit {
namespace {

TEST(Hash, FieldsWithEqualConcatenationHaveDifferentKeys) {
  EXPECT_NE(Hasher("d").add("a", "bc").digest(), Hasher("d").add("ab", "c").digest());
  EXPECT_NE(Hasher("d").add("a", "b").add("c", "").digest(),
            Hasher("d").add("a", "").add("c", "b").digest());
  EXPECT_NE(Hasher("d").add("a", "1").digest(), Hasher("d").add("a", std::int64_t{1}).digest());
  EXPECT_NE(Hasher("d").digest(), Hasher("e").digest());
}

TEST(Hash, IsStableAcrossVersions) {
  EXPECT_EQ(hash_hex("dorajit").size(), 32U);
  EXPECT_EQ(hash_hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hasher("d").add("a", "b").digest(), Hasher("d").add("a", "b").digest());
}

}  // namespace
}  // namespace dorajit
