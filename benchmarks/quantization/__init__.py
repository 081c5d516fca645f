"""What quantization costs in accuracy, on tasks that train here in seconds, beside the peers."""
