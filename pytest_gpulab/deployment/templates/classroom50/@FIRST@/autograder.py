"""Grade the submission in the working folder. Classroom 50 runs this for each submission."""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
Path("result.json").unlink(missing_ok=True)  # a student may have handed one in

with tempfile.TemporaryDirectory() as folder:
    programs = Path(folder) / "venv" / "bin"
    install = ["pip", "install", "--quiet", "-r", "requirements.txt", "-c", "constraints.txt"]
    subprocess.run([sys.executable, "-I", "-m", "venv", programs.parent], cwd=HERE, check=True)
    subprocess.run([programs / "python", "-I", "-m", *install], cwd=HERE, check=True)
    options = ["--for", "classroom50", "--exercises", str(HERE / "exercises"), "--timeout", "@LIMIT_S@"]
    sys.exit(subprocess.run([programs / "gpulab", "grade", ".", *options], check=False).returncode)
