//! The oncebox binary: arguments in, one command out. It decides nothing.

use std::process::ExitCode;

fn main() -> ExitCode {
    oncebox::operator::run(std::env::args_os())
}
