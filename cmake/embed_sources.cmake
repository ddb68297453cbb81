# cmake -DFOLDER=... -DFILES=a;b -DOUTPUT=... -P embed_sources.cmake
# Writes a C++ file that holds each file's name, text and SHA-256. Texts are arrays of bytes, since
# compilers limit the length of a string literal.

set(arrays "")
set(table "")
set(count 0)
foreach(name IN LISTS FILES)
  file(READ "${FOLDER}/${name}" hex HEX)
  file(SHA256 "${FOLDER}/${name}" sha256)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REPLACE "'\\x0a'," "'\\x0a',\n" bytes "${bytes}")
  string(APPEND arrays "constexpr char kText${count}[] = {\n${bytes}'\\0'};\n")
  string(APPEND table "    {\"${name}\", {kText${count}, sizeof kText${count} - 1},\n"
                      "     \"${sha256}\"},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE "${OUTPUT}" "// Generated from kernel_templates/ by cmake/embed_sources.cmake.
#include \"kernel_templates/embedded_sources.h\"

namespace dorajit::kernels {
namespace {

${arrays}
}  // namespace

const EmbeddedFile kEmbeddedFiles[] = {
${table}};
const int kNumEmbeddedFiles = ${count};

}  // namespace dorajit::kernels
")
