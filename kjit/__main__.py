"""`python -m kjit` is the command `kjit`."""

from kjit.cli import main

if __name__ == "__main__":
    main()
