# What GPUs of one host compute together: collectives over each other's memory.
ops_room(ranks
  SOURCES peer_ranks.cc
  CUDA peer_kernels.cu peer_ranks_cuda.cc
  TESTS peer_ranks_test.cc
  GPU_WORDS peer_ranks.cc peer_ranks_cuda.cc)
