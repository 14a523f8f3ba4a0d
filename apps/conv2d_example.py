"""A convolution layer, forward and back: what `make blas-profile` and `make torch-profile` look at by default.

    python apps/conv2d_example.py [repeats]
    godwit run --blas openblas apps/conv2d_example.py
"""

import sys
import time

import torch


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(64, 64, kernel_size=3, padding=1)
    x = torch.randn(8, 64, 56, 56, requires_grad=True)
    operations = 3 * 2.0 * 8 * 64 * 56 * 56 * 64 * 9  # forward, and both gradients
    layer(x).sum().backward()
    begun = time.perf_counter()
    for _ in range(repeats):
        layer(x).sum().backward()
    took = time.perf_counter() - begun
    print(f"{repeats} times forward and backward: {took:.2f} s, {1e-9 * operations * repeats / took:.1f} GFLOP/s, "
          f"sum of the weight's gradient {layer.weight.grad.double().sum().item():.6g}")


if __name__ == "__main__":
    main()
