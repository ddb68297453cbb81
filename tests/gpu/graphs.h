// Graph calls of the driver that the library does not use.
#pragma once

#include "runtime/base/dynamic_library.h"
#include "runtime/driver/cuda_driver.h"

namespace dorajit::tests {

class Graphs {
 public:
  using CuResult = driver::CuResult;
  using CuStream = driver::CuStream;

  bool open() {
    auto library = DynamicLibrary::open("libcuda.so.1");
    if (!library) return false;
    begin =
        reinterpret_cast<CuResult (*)(CuStream, int)>(library->symbol("cuStreamBeginCapture_v2"));
    end = reinterpret_cast<CuResult (*)(CuStream, void**)>(library->symbol("cuStreamEndCapture"));
    nodes = reinterpret_cast<CuResult (*)(void*, void**, std::size_t*)>(
        library->symbol("cuGraphGetNodes"));
    instantiate = reinterpret_cast<CuResult (*)(void**, void*, unsigned long long)>(
        library->symbol("cuGraphInstantiateWithFlags"));
    launch = reinterpret_cast<CuResult (*)(void*, CuStream)>(library->symbol("cuGraphLaunch"));
    library->keep_forever();
    return begin != nullptr && end != nullptr && nodes != nullptr && instantiate != nullptr &&
           launch != nullptr;
  }

  CuResult (*begin)(CuStream, int) = nullptr;
  CuResult (*end)(CuStream, void**) = nullptr;
  CuResult (*nodes)(void*, void**, std::size_t*) = nullptr;
  CuResult (*instantiate)(void**, void*, unsigned long long) = nullptr;
  CuResult (*launch)(void*, CuStream) = nullptr;
};

}  // namespace dorajit::tests
