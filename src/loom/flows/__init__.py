"""Declarative workflows: documents of both dialects, their checks, the compiled program and its planner. Pure."""
