"""Owns what was verified: read from the task's own inputs, its module, and the verdict."""

from evokernel.errors import ConfigError
from evokernel.export.literals import literal
from evokernel.export.spec import Domain, described
from evokernel.program import CASTS
from evokernel.task import Task


def verified(task: Task, workloads: tuple[str, ...], shapes: dict[str, tuple[int, ...]]) -> Domain:
    """What a kernel was verified for: the inputs of these workloads as they are, nothing near them.

    Both modes are put down; the finished file is asked in which of them the kernel serves.

    Args:
        task: What the kernel is for.
        workloads: Names of those on which it was found right.
        shapes: Of the candidate's parameters and buffers, by name.

    Raises:
        ConfigError: The task takes something that cannot be written down, or the candidate has
            other parameters than the task's module.
    """
    program = task.program()
    model = program.build()
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if shapes != own:
        other = sorted(dict(shapes.items() ^ own.items()))
        raise ConfigError(
            "the kernel cannot be exported: its parameters have other names or shapes than the "
            f"reference's (`{'`, `'.join(other[:4])}`), so that no trained module could be loaded"
        )
    made = {w.name: program.make_inputs(w) for w in program.workloads() if w.name in workloads}
    args, kwargs = program.init_inputs()
    tensors = (*model.named_parameters(), *model.named_buffers())
    domain = Domain(
        workloads={name: described(inputs) for name, inputs in made.items()},
        state={name: described(tensor.detach()) for name, tensor in tensors},
        constructor=(described(args), described(kwargs)),
        modes=("train", "eval"),
        cast=CASTS.get(task.options.precision),
    )
    _require_literals(task, domain)
    return domain


def _require_literals(task: Task, domain: Domain) -> None:
    for what, value in (("inputs", domain.workloads), ("constructor", domain.constructor)):
        try:
            literal(value)
        except ValueError as error:
            raise ConfigError(
                f"the kernel cannot be exported: the {what} of `{task.name}` hold {error}; an "
                "exported file can only compare numbers, texts, None, tensors, and lists, tuples "
                "and dictionaries of them"
            ) from error
