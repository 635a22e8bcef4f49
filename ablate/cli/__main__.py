"""`python -m ablate.cli`."""

from ablate.cli import main

main()
