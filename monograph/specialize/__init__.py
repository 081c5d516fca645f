"""Programs specialized while they run: for sizes that come back, for contents that calls show."""
