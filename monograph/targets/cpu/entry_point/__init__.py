"""The functions that run a program's steps in one native call, as LLVM's text."""
