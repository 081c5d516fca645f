"""The typed SSA graph: types, ops as values, nodes, text form, verification, interpretation."""
