// Times of launches, for the benches of CUDA kernels.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/op.h"

namespace headrace {

// Milliseconds of what `run` launches, recorded: without that the host's launches are what a small
// product's time is.
template <class Run>
float time_recorded(OpContext& context, const Run& run) {
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  cudaGraph_t graph;
  cudaGraphExec_t recorded;
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  run();
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&recorded, graph, 0);
  cudaGraphLaunch(recorded, stream);
  cudaEventRecord(start, stream);
  cudaGraphLaunch(recorded, stream);
  cudaEventRecord(stop, stream);
  cudaEventSynchronize(stop);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, start, stop);
  cudaGraphExecDestroy(recorded);
  cudaGraphDestroy(graph);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  return milliseconds;
}

}  // namespace headrace
