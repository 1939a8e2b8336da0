"""Connectors: connections of flows as the operations of OpenAPI documents.

`openapi` reads a document, `requests` makes the request of an operation, `credentials` shows who asks, and
`operation_action` does the actions. `checks` compares a program with the documents before it runs. Triggers poll and
subscribe with `connection_call` in `calls`.
"""
