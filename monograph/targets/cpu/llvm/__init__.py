"""From loop nests to LLVM's text."""
