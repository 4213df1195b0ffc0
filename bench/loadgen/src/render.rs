//! Writes the figures of result files into a document, between two markers: none is typed by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::machine;
use crate::result::Record;
use crate::table;

const BEGIN: &str = "<!-- figures: begin -->";
const END: &str = "<!-- figures: end -->";

/// Renders result files (none given: all below `bench/results`) into `document`. The latest record of a variant counts.
pub fn render(files: &[PathBuf], document: &Path) -> Result<(), String> {
    let files = if files.is_empty() { find(Path::new("bench/results"))? } else { files.to_vec() };
    let mut latest: BTreeMap<(String, &str, usize, String), (Record, String)> = BTreeMap::new();
    for file in &files {
        for record in read(file)?.into_iter().filter(|record| !record.quick) {
            let settings = record.settings.join(" ");
            let writers = record.writers.unwrap_or(0);
            let key =
                (record.workload.name.clone(), record.transport.name(), writers, settings + &record.target);
            let older = latest.get(&key).is_none_or(|held| held.0.started_unix_s <= record.started_unix_s);
            if older {
                latest.insert(key, (record, file.display().to_string()));
            }
        }
    }
    let (records, sources): (Vec<Record>, Vec<String>) = latest.into_values().unzip();
    let text = format!("{BEGIN}\n{}\n{}{END}", origin(&records, sources), table::tables(&records));
    let old = fs::read_to_string(document).map_err(|error| format!("{}: {error}", document.display()))?;
    let new = replace(&old, &text).ok_or_else(|| format!("{}: no markers {BEGIN}", document.display()))?;
    fs::write(document, new).map_err(|error| format!("{}: {error}", document.display()))
}

/// Says from what the figures come.
fn origin(records: &[Record], mut sources: Vec<String>) -> String {
    let Some(latest) = records.iter().max_by_key(|record| record.started_unix_s) else {
        return "No results yet.\n".to_owned();
    };
    sources.sort();
    sources.dedup();
    let mut commits: Vec<String> = records
        .iter()
        .map(|record| format!("{}{}", record.commit, if record.changed { " with changes" } else { "" }))
        .collect();
    commits.sort();
    commits.dedup();
    let machine = &latest.machine;
    let versions = [&latest.versions.broker, &latest.versions.python];
    let versions: Vec<&str> = versions.into_iter().flatten().map(String::as_str).collect();
    format!(
        "{} cores of {}, Linux {}; {}; commit {}; last measured {} (UTC). From {}.\n",
        machine.cores,
        machine.cpu,
        machine.kernel,
        versions.join(", "),
        commits.join(", "),
        machine::date_and_time(latest.started_unix_s).0,
        sources.join(", "),
    )
}

fn replace(old: &str, text: &str) -> Option<String> {
    let (before, rest) = old.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{text}{after}"))
}

fn read(file: &Path) -> Result<Vec<Record>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let parse = |(number, line)| {
        serde_json::from_str(line).map_err(|error| format!("{}:{}: {error}", file.display(), number + 1))
    };
    text.lines().enumerate().filter(|(_, line)| !line.is_empty()).map(parse).collect()
}

/// All result files below a folder.
fn find(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            files.extend(find(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let old = format!("head\n{BEGIN}\nold\n{END}\ntail\n");
        let expected = format!("head\n{BEGIN}new{END}\ntail\n");
        assert_eq!(replace(&old, &format!("{BEGIN}new{END}")), Some(expected));
        assert_eq!(replace("no markers", "x"), None);
    }
}
