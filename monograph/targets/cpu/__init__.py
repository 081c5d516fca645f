"""The CPU target: kernels to LLVM IR to native code, in process, through llvmlite."""
