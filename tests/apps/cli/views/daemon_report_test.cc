#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/cli/views/descriptions.h"

namespace dorajit::cli {
namespace {

using testing::HasSubstr;

TEST(DaemonReport, ShowsQueueWorkersAndWinners) {
  const std::string text = daemon_text(Json::parse(R"({
    "pid": 7, "draining": true, "clients": 2, "jobs_waiting": 1, "jobs_running": 1, "tuned": 1,
    "failed": 1, "workers_lost": 3,
    "devices": [{"device": "gpu", "tuning_seconds": 1.5}],
    "workers": [{"pid": 8, "device": "gpu", "problem": "p1"}, {"pid": 9, "device": "cpu",
                 "problem": null}],
    "queue": [{"problem": "p1", "device": "gpu", "waiters": 2, "running": true},
              {"problem": "p2", "device": "gpu", "waiters": 3, "running": false}],
    "recent": [{"problem": "p3", "device": "gpu", "seconds": 0.5, "age_seconds": 60, "config": "b64",
                "median_ns": 1000, "default_median_ns": 1500},
               {"problem": "p4", "device": "gpu", "seconds": 1, "age_seconds": 61,
                "failure": "it crashed"}]})"));
  for (const char* part :
       {"process 7 and is ending", "2 clients connected, 1 problem waiting, 1 running",
        "3 workers lost", "1.50 s of tuning on gpu", "p1", "p2", "1.50x", "it crashed"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string nothing = daemon_text(Json::parse(R"({"workers": 7, "pid": "x"})"));
  EXPECT_THAT(nothing, HasSubstr("0 clients"));
}

}  // namespace
}  // namespace dorajit::cli
