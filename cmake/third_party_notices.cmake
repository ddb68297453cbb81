# Writes THIRD_PARTY_NOTICES in the build folder: the licences of compiled-in code, copied from its packages.
# The file is distributed with all binaries.

set(DORAJIT_NOTICES "${PROJECT_BINARY_DIR}/THIRD_PARTY_NOTICES")
file(WRITE "${DORAJIT_NOTICES}"
  "dorajit's binaries contain code of these projects. The licence texts of their packages follow; where a\n"
  "package has several licences, the one in the heading applies to the code used here. The binaries may also\n"
  "contain libc++, whose licence (Apache-2.0 with LLVM exceptions) requires no notice in binaries.\n")

# dorajit_add_notice(NAME HEADLINE PREFIX... FILES FILE...): adds the first of the files that is found, relative to
# a prefix or to a folder under it where packages install such texts.
function(dorajit_add_notice name headline)
  cmake_parse_arguments(PARSE_ARGV 2 notice "" "" FILES)
  set(folders)
  foreach(prefix IN LISTS notice_UNPARSED_ARGUMENTS)
    list(APPEND folders "${prefix}/share/doc" "${prefix}/share/licenses" "${prefix}/share" "${prefix}")
  endforeach()
  find_file(DORAJIT_${name}_NOTICE NAMES ${notice_FILES} PATHS ${folders} NO_DEFAULT_PATH
            NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  if(NOT DORAJIT_${name}_NOTICE)
    message(WARNING "the licence of ${headline} was not found below ${notice_UNPARSED_ARGUMENTS}: set "
                    "-DDORAJIT_${name}_NOTICE=FILE before you distribute this build.")
    return()
  endif()
  file(READ "${DORAJIT_${name}_NOTICE}" text)
  string(REPEAT "=" 100 line)
  file(APPEND "${DORAJIT_NOTICES}" "\n${line}\n${headline}\n${line}\n\n${text}")
endfunction()
