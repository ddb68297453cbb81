# Writes README.md and docs/*.md of SOURCE into the folder OUTPUT, where they lie side by side. Links
# lead to where things are in an installation, HEADERS is its folder of headers as seen from there; what
# is not installed is named without a link.
file(REMOVE_RECURSE "${OUTPUT}")
file(GLOB pages "${SOURCE}/README.md" "${SOURCE}/docs/*.md")
foreach(page IN LISTS pages)
  cmake_path(GET page FILENAME name)
  file(READ "${page}" text)
  string(REGEX REPLACE "!\\[[^]]*\\]\\([^)]*\\)\n*" "" text "${text}")
  string(REGEX REPLACE "\\]\\((\\.\\./)?include/" "](${HEADERS}/" text "${text}")
  string(REPLACE "](docs/" "](" text "${text}")
  string(REPLACE "[docs/" "[" text "${text}")
  # A target that begins with a name and goes on with a slash, or lies beside docs/.
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?[A-Za-z_]+/[^)]*\\)" "\\1" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?(ARCHITECTURE|CONTRIBUTING)\\.md[^)]*\\)" "\\1"
                       text "${text}")
  string(REGEX REPLACE "\\]\\(\\.\\./README\\.md" "](README.md" text "${text}")
  file(WRITE "${OUTPUT}/${name}" "${text}")
endforeach()
