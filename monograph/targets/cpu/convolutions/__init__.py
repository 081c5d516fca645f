"""Convolutions that are not products as they stand: depthwise, Winograd, patches, windows."""
