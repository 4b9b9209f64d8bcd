"""The language: sorts, attributes, patterns, terms, instructions, and what they mean."""
