"""The vocabulary of answers about runs: one type each, shared by runtime, server, client and command line.

A type here is a frozen msgspec struct of plain data, so that the server encodes it, the client decodes it and the
command line prints it without a second definition. Functions that need a store or a running engine live in `runtime`.
"""
