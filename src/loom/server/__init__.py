"""The HTTP server: runs, events and streams for programs. Needs the extra `server`.

May import loom.runtime and what lies below it.
"""
