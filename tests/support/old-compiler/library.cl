// A device library of six functions, for a compiler that cannot read ROCm's (LLVM reads older bitcode, not newer).
typedef unsigned int uint;
typedef unsigned long size_t;
size_t __attribute__((overloadable, const)) get_local_id(uint n) {
  return n == 0 ? __builtin_amdgcn_workitem_id_x() : n == 1 ? __builtin_amdgcn_workitem_id_y() : 0;
}
size_t __attribute__((overloadable, const)) get_group_id(uint n) {
  return n == 0 ? __builtin_amdgcn_workgroup_id_x() : n == 1 ? __builtin_amdgcn_workgroup_id_y() : 0;
}
size_t __attribute__((overloadable, const)) get_global_id(uint n) { return get_group_id(n) * 64 + get_local_id(n); }
void __attribute__((overloadable)) barrier(uint flags) { __builtin_amdgcn_s_barrier(); }
float __attribute__((overloadable, const)) exp(float x) { return __builtin_amdgcn_exp2f(x * 1.442695f); }
