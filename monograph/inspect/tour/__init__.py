"""A guided tour of the compiler: short chapters, each a question and its answer, run live."""
