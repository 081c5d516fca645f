"""From groups to a program: slots, launches and steps, and what equal kernels share."""
