"""Commands of `mmrl`. Each is a module with `main(arguments) -> exit code`."""
