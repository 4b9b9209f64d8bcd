"""The format of machine files: syntax, names, tables, rules, and back."""
