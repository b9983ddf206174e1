# Ops that read and write the states of sequences.
ops_room(states
  SOURCES
    causal_conv.cc causal_conv_cpu.cc causal_conv_cpu_avx2.cc causal_conv_cpu_avx512.cc
    delta_rule.cc delta_rule_cpu.cc delta_rule_cpu_avx2.cc delta_rule_cpu_avx512.cc
    kimi_delta.cc kimi_delta_cpu.cc kimi_delta_cpu_avx2.cc kimi_delta_cpu_avx512.cc
    rg_lru.cc rg_lru_cpu.cc rg_lru_cpu_avx2.cc rg_lru_cpu_avx512.cc
    selective_scan.cc selective_scan_cpu.cc selective_scan_cpu_avx2.cc selective_scan_cpu_avx512.cc
    ssd_scan.cc ssd_scan_cpu.cc ssd_scan_cpu_avx2.cc ssd_scan_cpu_avx512.cc
    token_shift.cc token_shift_cpu.cc
    wkv7.cc wkv7_cpu.cc wkv7_cpu_avx2.cc wkv7_cpu_avx512.cc
  CUDA
    causal_conv_cuda.cu delta_rule_cuda.cu kimi_delta_cuda.cu rg_lru_cuda.cu selective_scan_cuda.cu
    ssd_scan_cuda.cu token_shift_cuda.cu wkv7_cuda.cu
  TESTS
    causal_conv_test.cc delta_rule_test.cc kimi_delta_test.cc rg_lru_cuda_test.cc rg_lru_test.cc
    selective_scan_test.cc ssd_scan_test.cc states_cuda_test.cc token_shift_cuda_test.cc
    token_shift_test.cc wkv7_cuda_test.cc wkv7_test.cc)

foreach(op causal_conv delta_rule kimi_delta rg_lru selective_scan ssd_scan wkv7)
  ops_compile_for(states "${avx2_flags}" ${op}_cpu_avx2.cc)
  ops_compile_for(states "${avx512_flags}" ${op}_cpu_avx512.cc)
endforeach()
