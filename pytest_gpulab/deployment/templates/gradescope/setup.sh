#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image. Grading fetches nothing.
set -euo pipefail
apt-get update
apt-get install -y --no-install-recommends python3 python3-venv bubblewrap
cd /autograder/source
python3 -m venv /autograder/venv
/autograder/venv/bin/python -m pip install --no-cache-dir -r requirements.txt -c constraints.txt
