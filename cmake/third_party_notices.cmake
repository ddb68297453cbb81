# THIRD_PARTY_NOTICES in the build folder: the licences of what is compiled in, in the words of the
# packages that it was taken from. It goes wherever binaries go.

set(DORAJIT_NOTICES "${PROJECT_BINARY_DIR}/THIRD_PARTY_NOTICES")
file(WRITE "${DORAJIT_NOTICES}"
  "dorajit's binaries hold code of these projects. What each package says of its licences follows;\n"
  "where it says more than one, the one in the headline holds for what is taken from it. They may hold\n"
  "libc++ as well, whose licence (Apache-2.0 with LLVM exceptions) asks for no notice in binaries.\n")

# dorajit_add_notice(NAME HEADLINE PREFIX... FILES FILE...): the first of the files that is found, each
# relative to a prefix or to where packages under it keep such texts.
function(dorajit_add_notice name headline)
  cmake_parse_arguments(PARSE_ARGV 2 notice "" "" FILES)
  set(folders)
  foreach(prefix IN LISTS notice_UNPARSED_ARGUMENTS)
    list(APPEND folders "${prefix}/share/doc" "${prefix}/share/licenses" "${prefix}/share" "${prefix}")
  endforeach()
  find_file(DORAJIT_${name}_NOTICE NAMES ${notice_FILES} PATHS ${folders} NO_DEFAULT_PATH NO_CACHE)
  if(NOT DORAJIT_${name}_NOTICE)
    message(WARNING "the licence of ${headline} was not found below ${notice_UNPARSED_ARGUMENTS}: name "
                    "its file with -DDORAJIT_${name}_NOTICE=FILE before what is built here is passed on.")
    return()
  endif()
  file(READ "${DORAJIT_${name}_NOTICE}" text)
  string(REPEAT "=" 100 line)
  file(APPEND "${DORAJIT_NOTICES}" "\n${line}\n${headline}\n${line}\n\n${text}")
endfunction()
