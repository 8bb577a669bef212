"""HTML pages.

- `environment`: templates and the security policy.
- `views`: a grade as pages show it.
- `feedback`: one page per student.
- `annotated_html`: annotated listings.
"""
