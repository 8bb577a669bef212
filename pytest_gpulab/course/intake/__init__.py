"""What a class handed in.

- `archive`, `entries`: ZIP exports and folders.
- `submissions`: the file that counts per student and exercise.
- `roster`: students, ids and their folders.
- `similarity`: sources that resemble each other.
"""
