"""Lowering: from the parts of a definition to the parts of a program, by what is lowered."""
