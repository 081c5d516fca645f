"""The processor as a device: object code, frames of addresses, threads, small calls."""
