"""``python -m streamq``: run a query on its checkpoint, and look at runs, and end them, from other processes."""

import sys

from streamq.run.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
