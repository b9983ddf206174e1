// Functions that kernels and the tests of their index arithmetic share.
#pragma once

#ifdef __CUDACC__
#define HEADRACE_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define HEADRACE_HOST_DEVICE inline
#endif
