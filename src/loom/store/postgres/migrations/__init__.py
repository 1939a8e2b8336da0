"""The numbered `.sql` files that make and change the schema in PostgreSQL. Imports nothing."""
