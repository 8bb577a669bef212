"""Autograders of learning platforms: grading one student's files, and the folders that instructors upload.

- `platforms`: the platforms, with their result files and exit codes.
- `autograder`: grade a submission; a result file is written in any case.
- `child`: the pytest process that grades.
- `package`, `wheel`: the folders with the exercises; the plugin itself in them, with pinned requirements.
- `result`: the platform's result file, from the grades or from the reason why there are none.
- `weights`: weights of exercises, as a course has them and a package carries them.
"""
