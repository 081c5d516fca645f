"""Loop nests: choosing a schedule for a kernel, and applying it."""
