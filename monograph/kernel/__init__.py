"""The kernel layer: what to compute (expressions over an index space), then how (a schedule)."""
