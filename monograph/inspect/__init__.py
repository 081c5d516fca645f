"""Tools that let a person see what the compiler sees."""
