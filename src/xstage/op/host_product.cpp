#include "xstage/op/host_product.hpp"

#include "xstage/core/error.hpp"

#ifdef XSTAGE_ONEDNN
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#endif

namespace xs {

#ifdef XSTAGE_ONEDNN

void host_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, float* c, std::int64_t ldc) {
  const auto status = dnnl_sgemm('N', 'T', m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
  check(status == dnnl_success, "oneDNN sgemm {}x{}x{} failed with status {}", m, n, k, static_cast<int>(status));
}

void use_one_thread_per_product() { omp_set_num_threads(1); }

const char* host_product_name() { return "oneDNN"; }

#else

void host_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
                  std::int64_t ldb, float* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t p = 0; p < k; ++p) sum += a[i * lda + p] * b[j * ldb + p];
      c[i * ldc + j] = sum;
    }
  }
}

void use_one_thread_per_product() {}

const char* host_product_name() { return "plain loops"; }

#endif

}  // namespace xs
