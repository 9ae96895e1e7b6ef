#pragma once

#include <cstdint>

namespace xs {

// c[m, n] = a[m, k] * b[n, k]^T, fp32, row-major with leading dimensions lda, ldb, ldc >= the row length.
// Single-threaded and deterministic for a given shape: a row of c is a function of its row of a and of b alone,
// wherever it stands. Results may depend on the shape, so callers always pass full tiles, zero-padded. oneDNN where it
// is built in, else plain loops.
void host_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, float* c, std::int64_t ldc);

// To be called once by every thread that multiplies: two threads per product would collapse when the other core is
// busy with another rank.
void use_one_thread_per_product();

const char* host_product_name();

}  // namespace xs
