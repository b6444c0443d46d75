# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m satlab`."""

from satlab.cli import main

if __name__ == "__main__":
    main()
