"""Files: what is in them is checked field by field, and they appear complete or not at all."""
