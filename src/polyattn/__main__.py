"""``python -m polyattn``: the command line."""

from polyattn.cli.main import main

if __name__ == "__main__":
    main()
