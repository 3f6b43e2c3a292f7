"""`coord submit`: launch a job, on this machine or on a cluster."""

from typing import Annotated, Final

from cyclopts import App, Parameter

_ASKS_FOR_HELP: Final = ((), ("--help",), ("-h",))


def build() -> App:
    """The command. Nothing that follows it is an option of `coord`: the job has a --help too."""
    app = App(
        name="submit",
        usage=(
            "Usage: coord submit [SPARK-SUBMIT FLAGS] coordinate|archive|claims|SCRIPT.py "
            "[ARGUMENTS]"
        ),
        help_epilogue=(
            "Exit codes are the job's: 0 stopped when asked, 1 failed, 2 wrong usage or settings, "
            "3 a newer driver does this prefix's work, 4 refused: topics or checkpoint are not "
            "what they must be. After 1 a supervisor is to start it again. --deploy-mode cluster "
            "is refused: the driver runs where this command does."
        ),
        help_flags=(),
        version_flags=(),
        end_of_options_delimiter="\0",  # which no argument has: "--" and "" are passed on
    )

    @app.default
    def submit(
        *arguments: Annotated[str, Parameter(allow_leading_hyphen=True, show=False)],
    ) -> int:
        """Launch a job with spark-submit, and stay until it ends; SIGTERM and Ctrl-C stop it.

        coordinate is the coordination job. archive writes the history in an application of its
        own, claims follows a coordination topic in one. SCRIPT.py is any script of yours. To see
        the arguments of a job: coord submit coordinate --help

        Without --master the job runs on this machine. For a cluster this Python environment is
        packed and shipped, without what only the command line needs. COORD_ENV_ARCHIVE names a
        ready archive instead, and COORD_SPARK_HOME another Spark than that of the pyspark package.
        """
        if arguments in _ASKS_FOR_HELP:
            from coordlib.cli.main.commands import build as commands

            commands().help_print(["submit"])
            return 0
        from coordlib.local.submit import run

        return run(arguments)

    return app
