"""The lowest layer: the compiled module, codes, errors, options, the state table, and small tools."""
