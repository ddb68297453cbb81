# dorajit_add_layer(<target> <sources> LINKS <targets>): one layer as a static library. A layer
# whose folder has no source file yet is an interface library, so that what builds on it configures.
function(dorajit_add_layer target)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "SOURCES;LINKS")
  if(layer_SOURCES)
    add_library(${target} STATIC ${layer_SOURCES})
    target_link_libraries(${target} PUBLIC dorajit_options ${layer_LINKS})
    # A third of the compilation of a source went into reading these.
    set(json "")
    if("dorajit_json" IN_LIST layer_LINKS)
      set(json <nlohmann/json.hpp>)
    endif()
    target_precompile_headers(${target} PRIVATE
      <algorithm> <chrono> <expected> <format> <functional> <map> <memory> <mutex> <optional> <span>
      <string> <string_view> <vector> ${json})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE dorajit_options ${layer_LINKS})
  endif()
endfunction()

# dorajit_optimise_always(<target>): for what calculates so much that tests of a Debug build would wait.
function(dorajit_optimise_always target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
endfunction()
