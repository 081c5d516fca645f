"""What each op becomes in ONNX: one file a family, as in ``monograph.ops``."""
