"""A kernel in the text of a script: for notebooks, experiments and bug reports.

python standardize.py
"""

from __future__ import annotations

import torch

import kjit

SOURCE = """
#include <kjit/tensor.h>

#include <cmath>

// Each row of x with mean 0 and variance 1.
void standardize(kjit::TensorView x, kjit::TensorView out) {
  using namespace kjit::host;
  SymbolicSize rows{"rows"}, columns{"columns"};
  TensorMatcher({rows, columns}).with_device<kDLCPU>().with_dtype<float>().verify(x, "x").verify(out, "out");
  const int64_t n = columns.unwrap();
  for (int64_t row = 0; row < rows.unwrap(); ++row) {
    const float* in = x.data_ptr<float>() + row * n;
    float* to = out.data_ptr<float>() + row * n;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[i];
    for (int64_t i = 0; i < n; ++i) squares += (in[i] - sum / n) * (in[i] - sum / n);
    const double scale = 1 / std::sqrt(squares / n);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>((in[i] - sum / n) * scale);
  }
}
"""


def main() -> None:
    module = kjit.load_inline("standardize", cpp_sources=SOURCE, functions="standardize")
    x = torch.randn(4, 1000) * 3 + 5
    out = torch.empty_like(x)
    module.standardize(x, out)
    torch.testing.assert_close(out, (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True))
    print(f"means {out.mean(1).abs().max():.0e}, deviations {out.std(1, correction=0).mean():.3f}")


if __name__ == "__main__":
    main()
