"""Compiled programs, called as their model was: functions, torch modules, ONNX files."""
