//! The list of planted faults is complete, the table has no others, and the search finds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use stompica_sim::faults::{ALL, Search};

/// Adds the names in `planted!("…")` of all files below a folder.
fn add_planted(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            add_planted(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("a source file");
            let planted = text.split("planted!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(planted.map(str::to_owned));
        }
    }
}

#[test]
fn all_planted_faults_are_listed_once_in_order() {
    let mut names = BTreeSet::new();
    add_planted(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/src"), &mut names);
    names.remove("…"); // of a comment
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ALL);
}

#[test]
fn the_table_names_no_fault_that_is_gone() {
    let table = include_str!("../README.md").split("<!-- planted faults: ").nth(1).expect("a table");
    let names: Vec<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(names.len() > 50 && names.iter().all(|name| ALL.contains(name)), "{names:?}");
}

#[test]
fn a_search_tells_a_place_that_is_never_reached() {
    let search = Search { steps: 2000, seeds_max: 30, cores: 2 };
    let rows = search.run(&["credit-twice", "nowhere"], |_, _| ());
    assert!(rows[0].is_found() && rows[0].seeds.1 > 0, "{:?}", rows[0]);
    assert!(!rows[1].is_found(), "{:?}", rows[1]);
    assert!(rows[1].line(30).contains("| never | > 30 | > 30 | > 30 |"), "{}", rows[1].line(30));
}
