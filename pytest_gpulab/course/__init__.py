"""A class of students: what they handed in, and grading all of it in many processes, resumably."""
