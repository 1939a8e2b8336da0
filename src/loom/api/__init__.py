"""The vocabulary of the API: one type for each thing that a caller asks for or gets.

The runtime renders stored runs as these types, the server encodes them and decodes requests with them, the client
decodes answers with them, and the command line prints them. The OpenAPI document is generated from them.

Types are frozen msgspec structs of plain data. A function that needs a store or a running engine lives in `runtime`.
This package imports nothing by itself: the engine needs a few of its modules, and must start fast.
"""
