"""Declarative workflows: documents in two dialects, compiled to programs that a planner walks. Pure.

Read in this order. `document` reads a definition. `compiler`, with `lowering`, makes a `program` of it and lists its
problems (`diagnostics`). `planner` answers the reducer's facts with a `walk` over the program: `nodes` says what each
family of actions does, `environment` what expressions see, `outcomes` and `retries` how actions end and begin again.
`state` is what a store keeps of it. `calls` is the contract with the effects.
"""
