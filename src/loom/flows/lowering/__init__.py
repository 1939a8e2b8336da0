"""From a definition to a program, one file per family of actions. Pure."""
