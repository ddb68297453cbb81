# Header-only dependencies, SQLite and libuv, each as an interface target named dorajit_<dependency>.
include(third_party_notices)

# dorajit_add_headers(NAME HEADER HEADLINE PACKAGE...): HEADLINE is the heading of its notice. The first package
# is Debian's name, the others are names in other distributions. Packages that are missing are named together below.
function(dorajit_add_headers name header headline package)
  find_path(DORAJIT_${name}_INCLUDE_DIR "${header}")
  if(NOT DORAJIT_${name}_INCLUDE_DIR)
    set(missing_packages ${missing_packages} ${package} PARENT_SCOPE)
    return()
  endif()
  mark_as_advanced(DORAJIT_${name}_INCLUDE_DIR)
  add_library(dorajit_${name} INTERFACE)
  target_include_directories(dorajit_${name} SYSTEM INTERFACE
    "$<BUILD_INTERFACE:${DORAJIT_${name}_INCLUDE_DIR}>")
  set(files)
  foreach(known_as IN LISTS package ARGN)
    list(APPEND files "${known_as}/copyright" "${known_as}/LICENSE" "${known_as}/LICENSE.MIT")
  endforeach()
  cmake_path(GET DORAJIT_${name}_INCLUDE_DIR PARENT_PATH prefix)
  dorajit_add_notice(${name} "${headline}" "${prefix}" FILES ${files})
endfunction()

dorajit_add_headers(json nlohmann/json.hpp "nlohmann/json (MIT)"
  nlohmann-json3-dev nlohmann-json json-devel)
dorajit_add_headers(xxhash xxhash.h "xxHash, its header (BSD-2-Clause)"
  libxxhash-dev xxhash xxhash-devel)
dorajit_add_headers(dlpack dlpack/dlpack.h "DLPack (Apache-2.0)" libdlpack-dev dlpack dlpack-devel)
dorajit_add_headers(sqlite sqlite3.h "SQLite (public domain)"
  libsqlite3-dev sqlite3 sqlite sqlite-libs)
if(DORAJIT_BUILD_CLI OR DORAJIT_BUILD_DAEMON)
  dorajit_add_headers(cli11 CLI/CLI.hpp "CLI11 (BSD-3-Clause)" libcli11-dev cli11 cli11-devel)
endif()
if(DORAJIT_BUILD_DAEMON)
  dorajit_add_headers(uv uv.h "libuv (MIT)" libuv1-dev libuv libuv-devel)
endif()
if(missing_packages)
  list(JOIN missing_packages " " missing_packages)
  message(FATAL_ERROR "Headers of libraries were not found: apt-get install ${missing_packages} (./dev setup does); "
    "other distributions have them under similar names.")
endif()
if(DORAJIT_BUILD_DAEMON)
  # Prefer the static archive, so that the daemon runs where libuv is not installed.
  find_library(DORAJIT_UV_LIBRARY NAMES libuv_a.a libuv.a uv REQUIRED)
  mark_as_advanced(DORAJIT_UV_LIBRARY)
  target_link_libraries(dorajit_uv INTERFACE "${DORAJIT_UV_LIBRARY}" ${CMAKE_DL_LIBS} rt)
endif()

# Prefer the static archive if it is position independent, so that the shipped library does not need the host's
# libsqlite3.
include(CheckCXXSourceCompiles)
find_library(DORAJIT_SQLITE_ARCHIVE libsqlite3.a)
if(DORAJIT_SQLITE_ARCHIVE)
  set(CMAKE_REQUIRED_FLAGS "-fPIC")
  set(CMAKE_REQUIRED_INCLUDES "${DORAJIT_sqlite_INCLUDE_DIR}")
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared -Wl,--exclude-libs,ALL)
  set(CMAKE_REQUIRED_LIBRARIES "${DORAJIT_SQLITE_ARCHIVE}" m ${CMAKE_DL_LIBS})
  check_cxx_source_compiles("#include <sqlite3.h>
    const char* version() { return sqlite3_libversion(); }
    int main() { return sqlite3_open(\"\", nullptr); }" DORAJIT_SQLITE_ARCHIVE_IS_PIC)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()
if(DORAJIT_SQLITE_ARCHIVE_IS_PIC)
  target_link_libraries(dorajit_sqlite INTERFACE "${DORAJIT_SQLITE_ARCHIVE}" m ${CMAKE_DL_LIBS})
else()
  find_library(DORAJIT_SQLITE_LIBRARY sqlite3 REQUIRED)
  target_link_libraries(dorajit_sqlite INTERFACE "${DORAJIT_SQLITE_LIBRARY}")
endif()
