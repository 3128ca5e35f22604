//! Arguments in, exit code out.

fn main() -> std::process::ExitCode {
    tallygate::cli::run()
}
