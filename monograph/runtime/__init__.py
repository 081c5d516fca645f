"""What runs a compiled program: executables, memory, threads, the cache and artifacts."""
