# Flags of every target: the standard library, floating point, sanitizers. Warnings and include paths are in
# dorajit_options, for our own code only.

separate_arguments(first_arguments UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1}")
dorajit_refuse_compiler(refusal "${CMAKE_CXX_COMPILER}" ${first_arguments})
if(NOT refusal STREQUAL "")
  message(FATAL_ERROR
    "${CMAKE_CXX_COMPILER} cannot build dorajit: ${refusal}. dorajit needs clang 19 or newer with libc++ (Debian's packages "
    "clang-19 libc++-19-dev libc++abi-19-dev lld-19), or GCC 13 or newer (g++-13). Install one of them, and set the "
    "environment variable CXX to its name unless that is clang++-19 to clang++-21, c++, g++ or g++-13 to g++-15. In a "
    "checkout, ./dev setup installs it.")
endif()

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Results must not depend on the config to the bit, so the optimiser must not change them.
add_compile_options(-ffp-contract=off -fno-fast-math)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # libc++ is linked statically and hidden, so that it does not clash with the host process's C++ library.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-stdlib=libc++>)
  add_link_options(-nostdlib++)
  set(CMAKE_CXX_STANDARD_LIBRARIES "-l:libc++.a -l:libc++abi.a")
  if(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(hardening EXTENSIVE)
  else()
    set(hardening FAST)
  endif()
  add_compile_definitions(_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_${hardening}
                          _LIBCPP_ENABLE_THREAD_SAFETY_ANNOTATIONS)
  string(REGEX MATCH "^[0-9]+" clang_major "${CMAKE_CXX_COMPILER_VERSION}")
  find_program(DORAJIT_LLD NAMES ld.lld-${clang_major} ld.lld)
  if(DORAJIT_LLD)
    add_link_options(--ld-path=${DORAJIT_LLD})
  endif()
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

if(DORAJIT_SANITIZE)
  add_compile_options(-fsanitize=${DORAJIT_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${DORAJIT_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_compile_options(-Wno-pass-failed)  # instrumented loops cannot be vectorised
  endif()
endif()

find_package(Threads REQUIRED)

add_library(dorajit_options INTERFACE)
target_include_directories(dorajit_options INTERFACE
  "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/kernel_templates")
target_compile_options(dorajit_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion -Wshadow -Wnon-virtual-dtor
  -Woverloaded-virtual -Wold-style-cast -Wcast-qual -Wundef
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wimplicit-fallthrough -Wextra-semi>
  $<$<BOOL:${DORAJIT_WERROR}>:-Werror>)
target_compile_definitions(dorajit_options INTERFACE DORAJIT_VERSION="${PROJECT_VERSION}")
target_link_libraries(dorajit_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
