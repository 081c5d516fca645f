"""Programs on NVIDIA GPUs: modules, memory and launches through CUDA's driver, without Triton."""
