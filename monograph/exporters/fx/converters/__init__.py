"""What each op is in torch: one file a family."""
