/* A driver with one device that can do nothing, and an NVRTC that refuses every kernel: built as
 * libcuda.so.1 and as a libnvrtc. What has no body of its own succeeds and leaves its results alone. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define DONE(name) \
  int name(void) { return 0; }

DONE(cuInit)
DONE(cuDeviceGet)
DONE(cuDevicePrimaryCtxRetain)
DONE(cuDevicePrimaryCtxRelease_v2)
DONE(cuCtxGetCurrent)
DONE(cuCtxPushCurrent_v2)
DONE(cuCtxPopCurrent_v2)
DONE(cuModuleLoadData)
DONE(cuModuleUnload)
DONE(cuModuleGetFunction)
DONE(cuFuncGetAttribute)
DONE(cuFuncSetAttribute)
DONE(cuLaunchKernelEx)
DONE(cuMemGetInfo_v2)
DONE(cuMemAlloc_v2)
DONE(cuMemFree_v2)
DONE(cuMemcpyHtoDAsync_v2)
DONE(cuMemcpyDtoHAsync_v2)
DONE(cuMemcpyDtoDAsync_v2)
DONE(cuMemsetD8Async)
DONE(cuPointerGetAttributes)
DONE(cuStreamCreate)
DONE(cuStreamDestroy_v2)
DONE(cuStreamSynchronize)
DONE(cuThreadExchangeStreamCaptureMode)
DONE(cuStreamIsCapturing)
DONE(cuStreamBeginCapture_v2)
DONE(cuStreamEndCapture)
DONE(cuGraphInstantiateWithFlags)
DONE(cuGraphUpload)
DONE(cuGraphLaunch)
DONE(cuGraphExecDestroy)
DONE(cuGraphDestroy)
DONE(cuEventCreate)
DONE(cuEventDestroy_v2)
DONE(cuEventRecord)
DONE(cuEventSynchronize)
DONE(cuEventElapsedTime)
DONE(nvrtcDestroyProgram)
DONE(nvrtcGetCUBINSize)
DONE(nvrtcGetCUBIN)

static int say(const char** text, const char* what) {
  *text = what;
  return 0;
}
int cuGetErrorName(int result, const char** text) { return say(text, "CUDA_ERROR_FAKE"); }
int cuGetErrorString(int result, const char** text) { return say(text, "fake"); }

static int give(int* value, int given) {
  *value = given;
  return 0;
}
int cuDriverGetVersion(int* version) { return give(version, 13000); }
int cuDeviceGetCount(int* count) { return give(count, 1); }
/* 9 for the compute capability too, and memory of the host will do. */
int cuDeviceGetAttribute(int* value) { return give(value, 9); }
int cuDeviceGetName(char* name, int size) { return *strncpy(name, "fake", size) == 0; }
int cuDeviceTotalMem_v2(size_t* bytes) {
  *bytes = (size_t)1 << 34;
  return 0;
}

/* Of the newest program: the last field is how many have been refused. */
static char last_log[80];
static int refused;

int nvrtcVersion(int* major, int* minor) { return give(major, 13) + give(minor, 0); }
const char* nvrtcGetErrorString(int result) { return "NVRTC_ERROR_COMPILATION"; }
/* All, that of a real device beside it included. */
enum { OLDEST = 75, NEWEST = 150 };
int nvrtcGetNumSupportedArchs(int* count) { return give(count, NEWEST - OLDEST + 1); }
int nvrtcGetSupportedArchs(int* archs) {
  for (int arch = OLDEST; arch <= NEWEST; ++arch) *archs++ = arch;
  return 0;
}
/* A program without headers is the one that asks what this library is. */
int nvrtcCreateProgram(void** program, const char* source, const char* name, int headers) {
  *program = headers == 0 ? NULL : (void*)last_log;
  return 0;
}
int nvrtcAddNameExpression(void* program, const char* expression) { return 0; }
int nvrtcGetLoweredName(void* program, const char* expression, const char** name) {
  *name = expression;
  return 0;
}
int nvrtcCompileProgram(void* program) {
  if (program == NULL) return 0;
  sprintf(last_log, "dorajit_kernel.cu(1): error: no such luck %d", ++refused);
  return 6;
}
int nvrtcGetPTXSize(void* program, size_t* size) {
    *size = 2;
    return 0;
}
int nvrtcGetPTX(void* program, char* ptx) { return *strcpy(ptx, "\n") == 0; }
int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = strlen(last_log) + 1;
  return 0;
}
int nvrtcGetProgramLog(void* program, char* log) { return *strcpy(log, last_log) == 0; }
