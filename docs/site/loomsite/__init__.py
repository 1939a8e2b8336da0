"""Makes the pages of the documentation site: those of `docs`, with what is generated from the code filled in.

`python -m loomsite FOLDER` writes plain Markdown; mkdocs makes the site of it. A page says where something is generated
by a line such as `<!-- generated: commands -->`.
"""
