"""`dagveil completion`: commands, options and file names by the tabulator key."""

from typing import Final

import click
from click import shell_completion

PROGRAM: Final = "dagveil"
VARIABLE: Final = "_DAGVEIL_COMPLETE"
_INSTALL: Final = {
    "bash": f"echo 'eval \"$({PROGRAM} completion bash)\"' >> ~/.bashrc",
    "zsh": f"echo 'eval \"$({PROGRAM} completion zsh)\"' >> ~/.zshrc",
    "fish": f"{PROGRAM} completion fish > ~/.config/fish/completions/{PROGRAM}.fish",
}


class _Files(shell_completion.ShellComplete):
    """Completes file names where nothing else fits: most arguments are files."""

    def get_completions(self, args: list[str], incomplete: str) -> list[shell_completion.CompletionItem]:
        return super().get_completions(args, incomplete) or [shell_completion.CompletionItem(incomplete, type="file")]


_KINDS: Final = (shell_completion.BashComplete, shell_completion.ZshComplete, shell_completion.FishComplete)
SHELLS: Final[dict[str, type[shell_completion.ShellComplete]]] = {
    kind.name: type(kind.__name__, (_Files, kind), {}) for kind in _KINDS
}
for name, shell in SHELLS.items():
    shell_completion.add_completion_class(shell, name)


@click.command(short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options and file names. How to keep it is printed too."""
    click.echo(SHELLS[shell](context.find_root().command, {}, PROGRAM, VARIABLE).source())
    click.echo(f"to keep it: {_INSTALL[shell]}", err=True)
