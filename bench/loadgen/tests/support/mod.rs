//! Runs the program with a workload of the test's own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A folder with one workload, deleted at the end of the test.
pub struct Workload {
    folder: PathBuf,
    file: PathBuf,
}

impl Workload {
    /// Writes the workload; `name` is unique among the tests.
    pub fn new(name: &str, fields: &str) -> Workload {
        let folder = std::env::temp_dir().join(format!("stompica-loadgen-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, format!("name = '{name}'\n{fields}")).expect("so can a file in it");
        Workload { folder, file }
    }

    /// Runs the program: a command, this workload's file, further arguments.
    pub fn command(&self, command: &str, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_stompica-loadgen"))
            .arg(command)
            .arg(&self.file)
            .args(arguments)
            .output()
            .expect("the program starts")
    }

    /// Runs one repetition and returns its result, which must agree with the exit status.
    pub fn run(&self, address: SocketAddr, arguments: &[&str]) -> serde_json::Value {
        let output = self.command("run", &[&["--connect", &address.to_string()], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&errors);
        assert_eq!(output.status.success(), result["fault"].is_null(), "{result}");
        result
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
