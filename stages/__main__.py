"""`python -m stages NAME[@KEY]`: what dvc.yaml runs."""

import sys

from stages.runner import main

sys.exit(main(sys.argv[1:]))
