# Loops that measure the machine, for `bench ceilings`.
list(APPEND sources ceiling.cc ceiling_cpu_avx2.cc ceiling_cpu_avx512.cc ceiling_cpu_avx512_vnni.cc
     ceiling_cpu_avx512_bf16.cc ceiling_cpu_avx_vnni.cc ceiling_cpu_amx.cc)
set(ceiling_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
set_source_files_properties(ceiling_cpu_avx2.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
set_source_files_properties(ceiling_cpu_avx_vnni.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mavxvnni")
set_source_files_properties(ceiling_cpu_avx512.cc PROPERTIES COMPILE_OPTIONS "${ceiling_avx512}")
set_source_files_properties(ceiling_cpu_avx512_vnni.cc PROPERTIES
                            COMPILE_OPTIONS "${ceiling_avx512};-mavx512vnni")
set_source_files_properties(ceiling_cpu_avx512_bf16.cc PROPERTIES
                            COMPILE_OPTIONS "${ceiling_avx512};-mavx512bf16")
set_source_files_properties(ceiling_cpu_amx.cc PROPERTIES
                            COMPILE_OPTIONS "-mamx-tile;-mamx-int8;-mamx-bf16")
