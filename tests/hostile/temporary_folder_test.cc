// A folder of temporary files in which other users may rename files.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <format>

#include "kernel_templates/template.h"
#include "runtime/compile/host_compiler.h"
#include "tests/fakes/scoped_environment.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/variants.h"

namespace dorajit::hostile {
namespace {

// The compiler acts as the attacker: before it writes, it replaces its working folder by a folder
// with other code.
TEST(HostileTemporaryFolder, CodeIsReadFromTheCreatedFolder) {
  const cache::TemporaryDirectory directory;
  const std::string place = directory.file("tmp");
  ASSERT_EQ(::mkdir(place.c_str(), 0777), 0);
  const std::string compiler = directory.file("c++");
  cache::write_file(compiler, std::format("#!/bin/sh\n"
                                          "mine=$(echo {0}/dorajit-*)\n"
                                          "mv \"$mine\" {0}/moved\n"
                                          "mkdir -m 777 \"$mine\"\n"
                                          "printf evil > \"$mine/dorajit_kernel.so\"\n"
                                          "while [ $# -gt 1 ]; do\n"
                                          "  if [ \"$1\" = -o ]; then printf own > \"$2\"; fi\n"
                                          "  shift\n"
                                          "done\n",
                                          place));
  ASSERT_EQ(::chmod(compiler.c_str(), 0755), 0);
  const tests::ScopedEnvironment environment{"TMPDIR"};
  setenv("TMPDIR", place.c_str(), 1);
  compile::HostCompiler host(compiler, nullptr);
  const auto artifact =
      host.compile({.variant = tests::float_compose(),
                    .config = kernels::builtin_cpu_config(tests::float_compose()),
                    .target = {.kind = kernels::DeviceKind::kCpu, .arch = "native"}});
  ASSERT_TRUE(artifact) << artifact.error().message << artifact.error().log;
  EXPECT_EQ(artifact->code, "own");
}

}  // namespace
}  // namespace dorajit::hostile
