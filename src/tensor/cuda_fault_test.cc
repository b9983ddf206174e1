#include "tensor/cuda_fault.h"

#include <gtest/gtest.h>

namespace headrace::cuda_fault_test {
namespace {

TEST(CudaFault, WhatALostDeviceSaysIsAFault) {
  for (const cudaError_t error :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorLaunchTimeout,
        cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorHardwareStackError,
        cudaErrorIllegalInstruction, cudaErrorMisalignedAddress, cudaErrorInvalidAddressSpace,
        cudaErrorInvalidPc, cudaErrorAssert, cudaErrorContained, cudaErrorUnknown}) {
    EXPECT_TRUE(is_cuda_fault(error)) << cuda_error_text(error);
  }
}

// A launch that finds no memory for its code, and one into a recording that is broken already.
TEST(CudaFault, SoIsWhatRunsOut) {
  EXPECT_TRUE(is_cuda_fault(cudaErrorMemoryAllocation));
  EXPECT_TRUE(is_cuda_fault(cudaErrorStreamCaptureInvalidated));
}

TEST(CudaFault, WrongLaunchesAreBugs) {
  for (const cudaError_t error :
       {cudaErrorInvalidValue, cudaErrorInvalidConfiguration, cudaErrorInvalidDeviceFunction,
        cudaErrorNoKernelImageForDevice, cudaErrorLaunchOutOfResources,
        cudaErrorCooperativeLaunchTooLarge, cudaErrorInvalidResourceHandle}) {
    EXPECT_FALSE(is_cuda_fault(error)) << cuda_error_text(error);
  }
  EXPECT_FALSE(is_cuda_fault(cudaSuccess));
}

TEST(CudaFault, IsNamed) {
  const Status status = cuda_fault(cudaErrorIllegalAddress);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(),
            "CUDA: an illegal memory access was encountered (cudaErrorIllegalAddress)");
}

}  // namespace
}  // namespace headrace::cuda_fault_test
