"""Read the hardware's counters of the launches of counter_launches.py with Nsight Compute: writes counters.json.

Run it on a machine with an NVIDIA GPU, nvcc, PyCUDA and ncu, with the package importable:

    python tests/h200/record_counters.py FOLDER
    python tests/h200/record_counters.py FOLDER atomic|student|retry|lab|tutorial|homework|variants|seminar

`FOLDER/counters.json` is the record; `counters_source.csv` (the same by machine instruction) and `kernels.cubin` are
for looking into a difference. The second form records the small launches of the module with that name, such as
atomic_launches.py; of the last seven, the record holds the compared counters that are not 0.
"""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import atomic_launches
import counter_launches
import homework_launches
import lab_launches
import numpy as np
import retry_launches
import seminar_launches
import student_launches
import tutorial_launches
import variants_launches

from pytest_gpulab.devices import open_device
from pytest_gpulab.devices.cuda.nvcc.compile import Nvcc

SMALL = {
    "atomic": atomic_launches,
    "student": student_launches,
    "retry": retry_launches,
    "lab": lab_launches,
    "tutorial": tutorial_launches,
    "homework": homework_launches,
    "variants": variants_launches,
    "seminar": seminar_launches,
}
WHICH = next((which for which in SMALL if which in sys.argv), "counter")
SOURCE = Path(__file__).parent / f"{WHICH}_kernels.cu"
# named in measured.json, so they exist; the others are asked for if this ncu knows them
CERTAIN = sorted(json.loads((Path(__file__).parent / "measured.json").read_text())["copy_strided_1"]["counters"])
METRICS = [
    "gpu__time_duration.sum", "idc__requests.sum", "smsp__inst_executed_op_ldc.sum", "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum", "smsp__thread_inst_executed_pred_on.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio", "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__inst_executed_op_shared_ld.sum", "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_shared_atom.sum", "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum", "smsp__inst_executed_op_global_red.sum",
    "smsp__inst_executed_op_global_atom.sum", "smsp__inst_executed_op_local_ld.sum",
    "smsp__inst_executed_op_local_st.sum", "smsp__inst_executed_op_branch.sum", "smsp__inst_executed_pipe_xu.sum",
    "smsp__sass_branch_targets.sum", "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__sass_branch_targets_threads_uniform.sum", "launch__registers_per_thread", "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
]  # fmt: skip
METRICS += [f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors")
            for op in ("ld", "st", "atom", "red")]  # fmt: skip
METRICS += [f"l1tex__t_{what}_pipe_lsu_mem_local_op_{op}.sum" for what in ("requests", "sectors")
            for op in ("ld", "st")]  # fmt: skip
METRICS += [f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")]
METRICS += [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom")]


def launches():
    return SMALL[WHICH].launches("small") if WHICH in SMALL else counter_launches.launches()


def run(folder):
    """Launch every row once; this is what ncu watches."""
    device, _ = open_device("cuda", 60.0)
    text = SOURCE.read_text()
    (folder / "kernels.cubin").write_bytes(Nvcc().cubin(text, SOURCE.name, "sm_90", {}, {})[0])
    module = device.compile(text, SOURCE.name)
    for row in launches():
        for name, values in row.constants.items():
            module.set_constant(name, values)
        args = [device.array(a) if isinstance(a, np.ndarray) else a for a in row.args]
        module.launch(row.kernel, row.grid, row.block, args, row.shared_bytes)
        device.reset()
    device.close()


def known_metrics():
    query = ["ncu", "--query-metrics", "--chip", "gh100"]
    found = subprocess.run(query, check=False, stdout=subprocess.PIPE, text=True).stdout.split()
    return [name for name in METRICS if name in CERTAIN or name.split(".")[0] in found]


def record(folder):
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "counters.ncu-rep"
    program = [sys.executable, __file__, "--run", str(folder), *sys.argv[2:]]
    watch = ["ncu", "--clock-control", "none", "--force-overwrite", "--export", str(report), "--section",
             "SourceCounters", "--metrics", ",".join(known_metrics())]  # fmt: skip
    subprocess.run([*watch, *program], check=True)
    read = ["ncu", "--import", str(report), "--csv", "--print-units", "base", "--page"]
    table = subprocess.run([*read, "raw"], check=True, stdout=subprocess.PIPE, text=True).stdout
    with (folder / "counters_source.csv").open("w") as stream:
        subprocess.run([*read, "source", "--print-source", "sass"], check=False, stdout=stream)
    rows = list(csv.DictReader(io.StringIO(table)))[1:]  # the first line holds units
    record = {}
    for row, launch in zip(rows, launches(), strict=True):
        assert row["Kernel Name"].startswith(launch.kernel), (row["Kernel Name"], launch.name)
        values = {name: row.get(name, "").replace(",", "") for name in METRICS}
        record[launch.name] = {name: float(text) for name, text in sorted(values.items()) if _is_number(text)}
    (folder / "counters.json").write_text(json.dumps(record, indent=1) + "\n")
    for name, counters in record.items():
        print(f"{name:28s} {counters.get('smsp__inst_executed.sum', 0):12.0f} instructions, {len(counters)} metrics")


def _is_number(text):
    return text.replace(".", "", 1).lstrip("-").isdigit()


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(Path(sys.argv[2]))
    else:
        record(Path(sys.argv[1]))
