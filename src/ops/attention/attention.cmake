# Attention over the paged cache, and what writes the cache before it.
ops_room(attention
  SOURCES
    attention.cc attention_cpu.cc compress_keys.cc compress_keys_cpu.cc full_attention.cc full_attention_cpu.cc full_attention_cpu_avx2.cc
    full_attention_cpu_avx512.cc gather_keys.cc gather_keys_cpu.cc
    index_keys.cc index_keys_cpu.cc latent_kv.cc latent_kv_cpu.cc page_rows.cc page_rows_cpu.cc pool_index_keys.cc pool_index_keys_cpu.cc rope_attention.cc rope_kv.cc rope_kv_cpu.cc rope_kv_cpu_avx2.cc rope_kv_cpu_avx512.cc
    select_blocks.cc select_blocks_cpu.cc select_keys.cc select_keys_cpu.cc select_keys_cpu_avx2.cc select_keys_cpu_avx512.cc tiles.cc panels.cc materialised.cc plan.cc latent_plan.cc
    cpu_avx2.cc cpu_avx512.cc cpu_avx512_bf16.cc cpu_amx.cc cpu_materialised.cc
  CUDA
    attention_cuda.cu attention_tensor_map.cu cuda_d64.cu cuda_d80.cu cuda_d96.cu cuda_d128.cu cuda_d256.cu cuda_d512.cu
    cuda_d192_128.cu cuda_alibi_d64.cu cuda_alibi_d80.cu cuda_alibi_d96.cu cuda_alibi_d128.cu
    rope_attention_cuda.cu rope_attention_cuda_d64.cu rope_attention_cuda_d128.cu rope_attention_cuda_d256.cu
    rope_kv_cuda.cu latent_attention_cuda.cu latent_kv_cuda.cu page_rows_cuda.cu
    index_keys_cuda.cu select_keys_cuda.cu gather_keys_cuda.cu
  TESTS
    attention_test.cc attention_tree_test.cc attention_cuda_test.cc attention_columns_cuda_test.cc attention_heads_cuda_test.cc compress_keys_test.cc full_attention_test.cc gather_keys_test.cc index_keys_test.cc latent_kv_test.cc latent_cuda_test.cc page_rows_test.cc pool_index_keys_test.cc rope_attention_cuda_test.cc rope_kv_test.cc rope_kv_cuda_test.cc select_blocks_test.cc select_keys_test.cc
    index_keys_cuda_test.cc select_keys_cuda_test.cc gather_keys_cuda_test.cc
    plan_test.cc latent_plan_test.cc page_test.cc cpu_amx_emulated.cc
  GPU_WORDS
    plan_test.cc page_test.cc)

ops_compile_for(attention "${avx2_flags}" cpu_avx2.cc full_attention_cpu_avx2.cc rope_kv_cpu_avx2.cc select_keys_cpu_avx2.cc)
ops_compile_for(attention "${avx512_flags}" cpu_avx512.cc cpu_materialised.cc full_attention_cpu_avx512.cc rope_kv_cpu_avx512.cc select_keys_cpu_avx512.cc)
ops_compile_for(attention "${amx_flags}" cpu_amx.cc)
# The last is the kernel of AMX on emulated tiles, for tests.
ops_compile_for(attention "${avx512_flags};-mavx512bf16" cpu_avx512_bf16.cc cpu_amx_emulated.cc)

headrace_bench(attention_cpu_bench SOURCES ops/attention_cpu_bench.cc LINKS headrace_ops)
if(HEADRACE_CUDA)
  headrace_bench(attention_bench SOURCES ops/attention_bench.cc LINKS headrace_ops CUDA::cudart_static)
endif()
