"""``polyattn program``: machines and programs as attention, one file per subcommand."""
