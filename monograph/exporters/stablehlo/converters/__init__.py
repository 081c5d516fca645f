"""What each op is in StableHLO: one file a family."""
