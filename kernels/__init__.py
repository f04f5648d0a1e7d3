"""GPU kernels in Triton, one operation a file or a package: copy this folder under any name beside torch and triton."""
