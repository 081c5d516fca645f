"""The thread pool, as LLVM's text."""
