"""`python -m stages NAME[@KEY]`: what dvc.yaml runs."""

import os
import sys

# Threads that wait by spinning make two processes on shared cores several times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

from stages.runner import main

sys.exit(main(sys.argv[1:]))
