#pragma once

#include <cstddef>
#include <cstdint>

// Products of a warpgroup (sm_90a): bf16 operands in shared memory, fp32 sums in registers.
//
// The sums of 64 x 256 are spread so: warp w of the warpgroup has rows 16 w to 16 w + 15; of those, lane l has rows l /
// 4 and l / 4 + 8; its sums d[4 j] to d[4 j + 3] are columns 8 j + 2 (l % 4) and the next, of the first row, then of
// the second.

namespace xs {

inline constexpr int kProductDepth = 64;  // columns of both operands that a box of load_box() has

// Where an operand's rows begin in shared memory: rows of 128 bytes in the 128-byte swizzle, eight of them 1024 bytes
// apart from the next eight.
class ProductOperand {
 public:
  __device__ explicit ProductOperand(const std::byte* rows) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(rows));
    constexpr std::uint64_t kNextEight = 1024 >> 4, kSwizzle128 = 1;
    word_ = (address & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | kNextEight << 32 | kSwizzle128 << 62;
  }
  // The part that begins `step` times 16 columns later.
  __device__ std::uint64_t at(int step) const { return word_ + static_cast<std::uint64_t>(step) * (32 >> 4); }

 private:
  std::uint64_t word_;
};

namespace detail {

// d = a b, or d += a b: 64 rows by 256 columns over 16 columns of depth. Issued on return.
__device__ inline void wgmma_64x256x16(float (&d)[128], std::uint64_t a, std::uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]),
        "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]),
        "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),
        "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]),
        "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]),
        "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]),
        "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]),
        "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
        "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

}  // namespace detail

// Called by all threads of a warpgroup, as are the waits. Needs: both operands have arrived (their barriers' phases are
// over); `add` false: `sums` need not be set. Issued on return: until a wait says so, `sums` must not be touched.
__device__ inline void multiply(float (&sums)[128], const ProductOperand& a, const ProductOperand& b, bool add) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int step = 0; step < kProductDepth / 16; ++step) {
    detail::wgmma_64x256x16(sums, a.at(step), b.at(step), add || step > 0);
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All products of this warpgroup are done but the last one: operands of those before are free.
__device__ inline void wait_for_all_but_last() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

// All are done: `sums` may be read.
__device__ inline void wait_for_products(float (&sums)[128]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");  // not read earlier
}

// A warpgroup takes registers that others have given back. Called by all of its threads; multiples of 8.
template <int kRegisters>
__device__ inline void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace xs
