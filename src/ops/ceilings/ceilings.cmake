# Loops that measure the machine, for `bench ceilings`.
ops_room(ceilings
  SOURCES
    ceiling.cc cpu_avx2.cc cpu_avx512.cc cpu_avx512_vnni.cc cpu_avx512_bf16.cc cpu_avx_vnni.cc cpu_amx.cc
  CUDA
    ceiling_cuda.cu)

set(ceiling_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
ops_compile_for(ceilings "-mavx2;-mfma" cpu_avx2.cc)
ops_compile_for(ceilings "-mavx2;-mavxvnni" cpu_avx_vnni.cc)
ops_compile_for(ceilings "${ceiling_avx512}" cpu_avx512.cc)
ops_compile_for(ceilings "${ceiling_avx512};-mavx512vnni" cpu_avx512_vnni.cc)
ops_compile_for(ceilings "${ceiling_avx512};-mavx512bf16" cpu_avx512_bf16.cc)
ops_compile_for(ceilings "-mamx-tile;-mamx-int8;-mamx-bf16" cpu_amx.cc)
