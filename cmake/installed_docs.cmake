# Writes README.md, CHANGELOG.md and docs/*.md of SOURCE into the folder OUTPUT, side by side. Links are changed to the paths
# of an installation; HEADERS is the path from there to its headers. Links to files that are not installed
# become plain text.
file(REMOVE_RECURSE "${OUTPUT}")
file(GLOB pages "${SOURCE}/README.md" "${SOURCE}/CHANGELOG.md" "${SOURCE}/docs/*.md")
foreach(page IN LISTS pages)
  cmake_path(GET page FILENAME name)
  file(READ "${page}" text)
  string(REGEX REPLACE "!\\[[^]]*\\]\\([^)]*\\)\n*" "" text "${text}")
  string(REGEX REPLACE "\\]\\((\\.\\./)?include/" "](${HEADERS}/" text "${text}")
  string(REPLACE "](docs/" "](" text "${text}")
  string(REPLACE "[docs/" "[" text "${text}")
  # Links into other folders, and to pages beside docs/, have no target in an installation.
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?[A-Za-z_]+/[^)]*\\)" "\\1" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)?(ARCHITECTURE|CONTRIBUTING)\\.md[^)]*\\)" "\\1"
                       text "${text}")
  string(REGEX REPLACE "\\]\\(\\.\\./README\\.md" "](README.md" text "${text}")
  file(WRITE "${OUTPUT}/${name}" "${text}")
endforeach()
