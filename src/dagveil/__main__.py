"""Run the command line: `python -m dagveil`."""

from dagveil.cli.main import main

main()
