# From rows of logits to tokens, and what a device keeps of its sequences for that.
ops_room(sampling
  SOURCES
    sample.cc candidate_filters.cc dry_penalty.cc sample_row.cc sample_cpu.cc sample_cpu_avx2.cc sample_cpu_avx512.cc device_sample.cc slot_state.cc spread_logits.cc spread_logits_cpu.cc
  CUDA
    device_sample_cuda.cu device_sample_block.cu device_sample_cluster.cu slot_state_cuda.cu spread_logits_cuda.cu
  TESTS
    sample_test.cc sample_filters_test.cc device_sample_test.cc device_sample_window_test.cc spread_logits_test.cc)

ops_compile_for(sampling "${avx2_flags}" sample_cpu_avx2.cc)
ops_compile_for(sampling "${avx512_flags}" sample_cpu_avx512.cc)

if(HEADRACE_CUDA)
  headrace_bench(sample_bench SOURCES ops/sample_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()
