#include "runtime/base/settings.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "tests/fakes/scoped_environment.h"

namespace dorajit {
namespace {

using tests::ScopedEnvironment;

class SettingsTest : public testing::Test {
 protected:
  ScopedEnvironment environment_{
      {"DORAJIT_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "DORAJIT_TUNE", "DORAJIT_LOG",
       "DORAJIT_AUTOTUNE", "DORAJIT_TUNE_SECONDS", "DORAJIT_SCRATCH_BYTES", "DORAJIT_NVRTC",
       "DORAJIT_CXX", "DORAJIT_DATABASES", "DORAJIT_CACHE_MAX_BYTES", "DORAJIT_TUNE_CANDIDATES",
       "DORAJIT_PRINT_AUTOTUNING", "DORAJIT_RECORD", "DORAJIT_WORKER",
       "DORA_AUTOTUNE_COMPREHENSIVE", "DORAJIT_DAEMON_DIR", "DORAJIT_TRUST_GROUP"}};
};

TEST_F(SettingsTest, CacheDirectoryFollowsItsThreeVariablesInOrder) {
  EXPECT_EQ(Settings::from_environment()->cache_dir, "");
  setenv("HOME", "/home/someone", 1);
  EXPECT_EQ(Settings::from_environment()->cache_dir, "/home/someone/.cache/dorajit");
  setenv("XDG_CACHE_HOME", "/var/cache/someone", 1);
  EXPECT_EQ(Settings::from_environment()->cache_dir, "/var/cache/someone/dorajit");
  setenv("DORAJIT_CACHE_DIR", "/fast/cache", 1);
  EXPECT_EQ(Settings::from_environment()->cache_dir, "/fast/cache");
}

TEST_F(SettingsTest, ReadsEveryVariable) {
  setenv("DORAJIT_TUNE", "off", 1);
  setenv("DORAJIT_LOG", "debug", 1);
  setenv("DORAJIT_AUTOTUNE", "comprehensive", 1);
  setenv("DORAJIT_TUNE_SECONDS", "0.25", 1);
  setenv("DORAJIT_SCRATCH_BYTES", "1048576", 1);
  setenv("DORAJIT_TUNE_CANDIDATES", "64", 1);
  setenv("DORAJIT_CACHE_MAX_BYTES", "4096", 1);
  setenv("DORAJIT_PRINT_AUTOTUNING", "1", 1);
  setenv("DORAJIT_TRUST_GROUP", "1", 1);
  setenv("DORAJIT_DAEMON_DIR", "/run/tuning", 1);
  const auto settings = Settings::from_environment();
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->tune_candidates, 64);
  EXPECT_EQ(settings->cache_max_bytes, 4096);
  EXPECT_TRUE(settings->print_autotuning);
  EXPECT_EQ(settings->tune_policy, TunePolicy::kOff);
  EXPECT_EQ(settings->log_level, LogLevel::kDebug);
  EXPECT_TRUE(settings->comprehensive);
  EXPECT_EQ(settings->tune_seconds, 0.25);
  EXPECT_EQ(settings->scratch_bytes, 1048576);
  EXPECT_EQ(settings->daemon_dir, "/run/tuning");
  EXPECT_TRUE(settings->trust_group);
  EXPECT_FALSE(Settings().trust_group);
}

TEST_F(SettingsTest, RecordPathIsIndependentOfLaterWorkingDirectories) {
  EXPECT_EQ(Settings::from_environment()->record_path, "");
  setenv("DORAJIT_WORKER", "none", 1);
  EXPECT_EQ(Settings::from_environment()->worker, "none");
  setenv("DORAJIT_RECORD", "/shared/problems.txt", 1);
  EXPECT_EQ(Settings::from_environment()->record_path, "/shared/problems.txt");
  setenv("DORAJIT_RECORD", "problems.txt", 1);
  EXPECT_EQ(Settings::from_environment()->record_path,
            (std::filesystem::current_path() / "problems.txt").string());
}

TEST_F(SettingsTest, DoraVariableAppliesUnlessDorajitAutotuneIsSet) {
  setenv("DORA_AUTOTUNE_COMPREHENSIVE", "1", 1);
  EXPECT_TRUE(Settings::from_environment()->comprehensive);
  setenv("DORAJIT_AUTOTUNE", "slim", 1);
  EXPECT_FALSE(Settings::from_environment()->comprehensive);
  setenv("DORA_AUTOTUNE_COMPREHENSIVE", "0", 1);
  setenv("DORAJIT_AUTOTUNE", "comprehensive", 1);
  EXPECT_TRUE(Settings::from_environment()->comprehensive);
}

TEST_F(SettingsTest, UnknownValueIsRefusedAndNamed) {
  for (const auto& [variable, value] : {std::pair{"DORAJIT_TUNE", "banana"},
                                        {"DORAJIT_LOG", "loud"},
                                        {"DORAJIT_AUTOTUNE", "fast"},
                                        {"DORAJIT_TUNE_SECONDS", "2s"},
                                        {"DORAJIT_TUNE_SECONDS", "-1"},
                                        {"DORAJIT_TUNE_SECONDS", "nan"},
                                        {"DORAJIT_TUNE_SECONDS", "inf"},
                                        {"DORAJIT_TUNE_SECONDS", " 2"},
                                        {"DORAJIT_TUNE_SECONDS", "0x10"},
                                        {"DORAJIT_SCRATCH_BYTES", "1e9"},
                                        {"DORAJIT_TUNE_CANDIDATES", "-1"},
                                        {"DORAJIT_TUNE_CANDIDATES", "4294967297"},
                                        {"DORAJIT_PRINT_AUTOTUNING", "yes"},
                                        {"DORAJIT_TRUST_GROUP", "yes"},
                                        {"DORA_AUTOTUNE_COMPREHENSIVE", "2"},
                                        {"DORAJIT_CACHE_DIR", "relative/path"},
                                        {"DORAJIT_DAEMON_DIR", "relative/path"}}) {
    setenv(variable, value, 1);
    const auto settings = Settings::from_environment();
    ASSERT_FALSE(settings) << variable << "=" << value;
    EXPECT_EQ(settings.error().code, StatusCode::kInvalidArgument);
    EXPECT_NE(settings.error().message.find(variable), std::string::npos);
    EXPECT_NE(settings.error().message.find(value), std::string::npos);
    unsetenv(variable);
  }
}

TEST_F(SettingsTest, ShippedDatabasesAreAFolderOrNone) {
  setenv("DORAJIT_DATABASES", "/opt/tuned", 1);
  EXPECT_EQ(Settings::from_environment()->shipped_databases, "/opt/tuned");
  setenv("DORAJIT_DATABASES", "none", 1);
  EXPECT_EQ(Settings::from_environment()->shipped_databases, "");
  setenv("DORAJIT_DATABASES", "tuned", 1);
  const auto refused = Settings::from_environment();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("DORAJIT_DATABASES"), std::string::npos);
}

}  // namespace
}  // namespace dorajit
