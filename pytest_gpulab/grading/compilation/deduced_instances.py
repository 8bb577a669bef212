"""Instances of kernel templates that no line names with arguments, such as `reduce<<<grid, block>>>(in, out, n)`.

The compiler deduces the arguments from the types that the grader passes, as it would from those of the host code.
"""

from collections.abc import Iterable, Iterator, Mapping

from pytest_gpulab.devices.source.declarations import Declaration
from pytest_gpulab.devices.source.host_code import kernel_templates
from pytest_gpulab.devices.source.tokens import Head, Token, after_angles, closing, parameters_of, tokens
from pytest_gpulab.exercise import Launch, Plan

from .parameter_types import c_name


def with_instances(
    source: str, headers: Mapping[str, str], launches: Iterable[tuple[Plan, Launch]], chosen: Iterable[str]
) -> str:
    """Return a text with declarations behind its end that instantiate kernel templates.

    The arguments of the launches give the types; `chosen` are the instances that GPULAB_KERNEL names.
    """
    templates = kernel_templates(source, headers)
    known = {each.signature.name for each in templates if each.signature is not None}
    lines = [
        f'static_assert(&{name} != nullptr, "");'
        for name in chosen
        if name.partition("<")[0].rpartition("::")[2].strip() in known and name.endswith(">")
    ]
    for plan, launch in launches:
        for each in templates:
            lines += _deduced(source, each, _arguments(plan, launch), f"gpulab_deduced_{len(lines)}")
    return "\n".join([source, *dict.fromkeys(lines), ""])


def _arguments(plan: Plan, launch: Launch) -> list[str]:
    """Return an expression for each argument; the names of types without one are left to the compiler."""
    return [
        f"({c_name(plan.buffer(each).dtype)} *)nullptr" if isinstance(each, str) else f"({c_name(each.dtype)})0"
        for each in launch.args
    ]


def _deduced(source: str, template: Declaration, arguments: list[str], function: str) -> Iterator[str]:
    """Yield a line that instantiates a template if all its arguments follow from those of the kernel.

    A function with the template's parameters returns the kernel's address. Where none can be deduced, another
    function, with any parameters, takes its place, and no kernel is instantiated.
    """
    head = tokens(source[template.start : template.body])
    found, behind = Head(head, 0), after_angles(head, 1)
    listed = list(parameters_of((Token("sign", "(", 0, 0), *head[2 : behind - 1], Token("sign", ")", 0, 0)), 0))
    names = [_name(each) for each in listed]
    if found.parameters is None or template.signature is None or any(name is None for name in names):
        return
    if len(template.signature.parameters) != len(arguments) or any(token.kind == "directive" for token in head):
        return
    parameters = head[found.parameters : closing(head, found.parameters) + 1]
    kernel = f"&{template.signature.name}<{', '.join(filter(None, names))}>"
    returned = f"-> decltype({kernel}) {{ return {kernel}; }}"
    yield " ".join(
        (*(f"namespace {name} {{" for name in template.namespaces),
         _text(head[:behind]), "constexpr auto", function, _text(parameters), returned,
         f"constexpr decltype(nullptr) {function}(...) {{ return nullptr; }}",
         f'static_assert({function}({", ".join(arguments)}) == nullptr || true, "");', "}" * len(template.namespaces))
    )  # fmt: skip


def _text(found: Iterable[Token]) -> str:
    return " ".join(token.text for token in found)


def _name(parameter: Iterable[Token]) -> str | None:
    """Return the name of a template's parameter; None without one, and for a pack."""
    texts = [token.text for token in parameter]
    texts = texts[: texts.index("=")] if "=" in texts else texts
    is_named = len(texts) > 1 and texts[-1].isidentifier() and not any("." in text for text in texts)
    return texts[-1] if is_named else None
