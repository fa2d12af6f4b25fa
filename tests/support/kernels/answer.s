// A kernel of the tests' own: stores ANSWER + BONUS through its one pointer argument.
// It needs what MIOpen's assembly needs: .include, -Wa,-defsym, and on gfx10 the wave size in the options.
.include "answer.inc"

.ifndef BONUS
  .error "BONUS must be defined"
.endif

.text
.globl answer
.p2align 8
.type answer,@function
answer:
  s_load_dwordx2 s[0:1], s[0:1], 0x0
  v_mov_b32 v0, 0
  v_mov_b32 v1, ANSWER + BONUS
  s_waitcnt lgkmcnt(0)
  global_store_dword v0, v1, s[0:1]
  s_endpgm
.Lend:
.size answer, .Lend - answer

.rodata
.p2align 6
.amdhsa_kernel answer
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 2
  .amdhsa_next_free_sgpr 2
.end_amdhsa_kernel

.amdgpu_metadata
---
amdhsa.version: [1, 1]
amdhsa.kernels:
  - .name: answer
    .symbol: answer.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 8
    .vgpr_count: 2
    .max_flat_workgroup_size: 64
    .args:
      - {.name: out, .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global}
...
.end_amdgpu_metadata
