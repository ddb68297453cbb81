# dorajit_add_layer(<target> SOURCES <sources> LINKS <targets>): one layer as a static library. A layer
# without sources is an interface library, so that targets that link it can be configured.
function(dorajit_add_layer target)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "SOURCES;LINKS")
  if(layer_SOURCES)
    add_library(${target} STATIC ${layer_SOURCES})
    target_link_libraries(${target} PUBLIC dorajit_options ${layer_LINKS})
    # Reading these headers took a third of the compile time of a source.
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

# dorajit_optimise_always(<target>): optimises a target also in Debug builds, where its computations would make
# tests slow.
function(dorajit_optimise_always target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
endfunction()
