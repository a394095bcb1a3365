"""`oq spark`: what makes Spark start sooner."""

from __future__ import annotations

import typer

from orchestration_queue.cli.common import JsonFlag, report

__all__ = ["app"]

app = typer.Typer(help="Make Spark start faster on this machine.", no_args_is_help=True)


@app.callback()
def _spark() -> None:
    """Keep `archive` a subcommand: without a callback, typer would run it for `oq spark`."""


@app.command("archive")
def archive(as_json: JsonFlag = False) -> None:
    """Create a class-data archive, which makes Spark start in a third less time on this machine."""
    from orchestration_queue.spark.build_archive import make_class_archive

    path = make_class_archive()
    report(as_json, f"Spark starts with the class archive {path} from now on.", archive=str(path))
