//! The names of the checkers are complete, in the code and in its document.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use stompica_sim::checkers::NAMES;

/// Adds the names with which the files below a folder say what was broken.
fn add_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_names(&path, names);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file");
        for begin in ["checker: ", "broken("] {
            let named = text.split(begin).skip(1).filter_map(|rest| rest.trim_start().strip_prefix('"'));
            names.extend(named.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
    }
}

#[test]
fn all_checkers_are_listed_once_in_order() {
    let mut names = BTreeSet::new();
    add_names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut names);
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), NAMES);
}

#[test]
fn the_document_has_the_promise_of_each_checker() {
    let text = include_str!("../../../docs/simulator.md");
    let section = text.split("\n## ").find(|section| section.starts_with("Checkers\n")).expect("the section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<_>>(), NAMES.iter().copied().collect::<BTreeSet<_>>());
}
