"""The commands of `mmrl`: one module each, with `main(arguments) -> exit code`."""
