"""Whole CUDA programs on the simulated GPU.

nvcc and g++ compile the program as it is, and link it with a stand-in for NVIDIA's runtime library. The program runs in
a process of its own. The stand-in passes each call to this process, where the simulated GPU answers it. Device memory
is a file in memory that both processes share.

- `toolchain`, `build`, `build_cache`: the compilers, the build, and a cache of both.
- `stand_in`: the stand-in for the runtime library; `runtime/` holds its C++.
- `linking`: PTX of several source files as one text.
- `process`: the program's process.
- `server`, `messages`: the server's loop, and requests and answers as bytes.
- `api`, `calls`: calls of the runtime library by name, and the functions that answer them.
- `session`, `device`, `shared_memory`: the state of a run, the simulated GPU, and its memory.
- `outcome`, `call_sites`: what happened, as plain data, and the source lines of calls.
- `confinement`: programs of other people, compiled and run in a sandbox.
"""
