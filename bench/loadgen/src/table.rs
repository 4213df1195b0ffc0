//! Readable tables, for the terminal and for documents alike (Markdown).

mod queues;

use std::fmt::Write;

use crate::result::{GENERATOR_BUSY, Median, Record, Run, median};
use crate::workload::Kind;

/// One line on stderr as soon as a variant is measured.
pub fn progress(record: &Record) {
    let [name, transport, writers] = keys(record);
    let runs = record.runs.len();
    match &record.median {
        None => eprintln!("{name} {transport} writers={writers}: FAILED"),
        Some(median) => {
            let rate = rate(median.deliveries_per_s);
            let cpu = micros(median.cpu_us_per_delivery);
            eprintln!("{name} {transport} writers={writers}: {rate}/s, {cpu} µs CPU each, {runs} runs");
        }
    }
}

/// Tables of all records, one for each kind of figure; empty ones are left out.
pub fn tables(records: &[Record]) -> String {
    let of = |kinds: &[Kind]| -> Vec<&Record> {
        records.iter().filter(|record| kinds.contains(&record.workload.kind)).collect()
    };
    let parts = [
        throughput(&of(&[Kind::Window, Kind::Fanin])),
        queues::speed(&of(&[Kind::Queue])),
        queues::memory(&of(&[Kind::Backlog, Kind::Queues])),
        latency(&of(&[Kind::Latency])),
        idle(&of(&[Kind::Idle])),
        firehose(&of(&[Kind::Firehose])),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn keys(record: &Record) -> [String; 3] {
    let writers = match record.writers {
        _ if record.target == "relay" => "(relay)".to_owned(),
        Some(writers) => writers.to_string(),
        None => "default".to_owned(),
    };
    let quick = if record.quick { " (quick)" } else { "" };
    [format!("{}{quick}", record.workload.name), record.transport.name().to_owned(), writers]
}

fn throughput(records: &[&Record]) -> String {
    let head = [
        "workload",
        "over",
        "writers",
        "deliveries/s",
        "CPU µs each",
        "relay/s",
        "of relay",
        "generator",
        "peak MiB",
        "runs",
    ];
    let row = |record: &&Record| {
        let [name, transport, writers] = keys(record);
        let (rate_text, cpu, generator) = match &record.median {
            None => (failed(record), "–".into(), "–".into()),
            Some(median) => {
                let cpu = micros(median.cpu_us_per_delivery);
                (rate(median.deliveries_per_s), cpu, share(median.generator_share))
            }
        };
        let relay = record.relay.as_ref();
        let relay_rate =
            relay.and_then(|relay| relay.median.as_ref()).map(|median| rate(median.deliveries_per_s));
        let ratio = relay.and_then(|relay| {
            let text = format!("{:.2}", relay.ratio?);
            Some(if relay.counts { text } else { format!("({text})") })
        });
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        vec![
            name,
            transport,
            writers,
            rate_text,
            cpu,
            or_dash(relay_rate),
            or_dash(ratio),
            generator,
            mebibytes(record),
            runs(record),
        ]
    };
    markdown(&head, records.iter().map(row))
}

fn latency(records: &[&Record]) -> String {
    let head = [
        "workload",
        "over",
        "writers",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "max µs",
        "from write p50 / p99",
        "relay p50 / p99",
        "generator",
        "runs",
    ];
    let pair = |figures: Option<[f64; 4]>| {
        figures.map_or_else(|| "–".to_owned(), |[p50, p99, ..]| format!("{p50:.0} / {p99:.0}"))
    };
    let row = |record: &&Record| {
        let mut cells = keys(record).to_vec();
        match record.median.as_ref().and_then(|median| median.latency_us) {
            Some(figures) => cells.extend(figures.map(|figure| format!("{figure:.0}"))),
            None => cells.extend([failed(record), "–".into(), "–".into(), "–".into()]),
        }
        let median = record.median.as_ref();
        let relay = record.relay.as_ref().and_then(|relay| relay.median.as_ref());
        cells.push(pair(median.and_then(|median| median.latency_from_write_us)));
        cells.push(pair(relay.and_then(|median| median.latency_us)));
        cells.push(median.map_or_else(|| "–".to_owned(), |median| share(median.generator_share)));
        cells.push(runs(record));
        cells
    };
    markdown(&head, records.iter().map(row))
}

fn idle(records: &[&Record]) -> String {
    let head = [
        "workload",
        "over",
        "writers",
        "connections",
        "user bytes each",
        "after a message",
        "CPU of a core at rest",
        "message to all ms",
        "peak MiB",
        "runs",
    ];
    let row = |record: &&Record| {
        let mut cells = keys(record).to_vec();
        let Some(idle) = record.runs.iter().map(|run| run.idle.as_ref()).collect::<Option<Vec<_>>>() else {
            cells.push(failed(record));
            cells.extend(vec!["–".to_owned(); 6]);
            return cells;
        };
        let of = |value: &dyn Fn(&crate::result::Idle) -> f64| {
            median(idle.iter().map(|idle| value(idle)).collect())
        };
        cells.extend([
            idle[0].connections.to_string(),
            format!("{:.0}", of(&|idle| idle.user_bytes_per_connection)),
            format!("{:.0}", of(&|idle| idle.user_bytes_per_connection_after)),
            format!("{:.3} %", of(&|idle| idle.idle_core_share * 100.0)),
            format!("{:.1}", of(&|idle| idle.message_to_all_ms)),
            mebibytes(record),
            runs(record),
        ]);
        cells
    };
    markdown(&head, records.iter().map(row))
}

fn firehose(records: &[&Record]) -> String {
    let head = [
        "workload",
        "over",
        "writers",
        "alone/s",
        "after the cut/s",
        "ratio",
        "stall ms (alone)",
        "the slow one",
        "generator",
        "peak MiB",
        "runs",
    ];
    let row = |record: &&Record| {
        let mut cells = keys(record).to_vec();
        let Some(all) = record.runs.iter().map(|run| run.firehose.as_ref()).collect::<Option<Vec<_>>>()
        else {
            cells.push(failed(record));
            cells.extend(vec!["–".to_owned(); 7]);
            return cells;
        };
        let of = |value: &dyn Fn(&crate::result::Firehose) -> f64| {
            median(all.iter().map(|one| value(one)).collect())
        };
        let stalls = [of(&|one| one.longest_stall_ms), of(&|one| one.longest_stall_alone_ms)];
        cells.extend([
            rate(of(&|one| one.alone_per_s)),
            rate(of(&|one| one.beside_per_s)),
            format!("{:.2}", of(&|one| one.ratio)),
            format!("{:.0} ({:.0})", stalls[0], stalls[1]),
            all[0].slow_ended.clone(),
            record.median.as_ref().map_or_else(|| "–".to_owned(), |median| share(median.generator_share)),
            mebibytes(record),
            runs(record),
        ]);
        cells
    };
    markdown(&head, records.iter().map(row))
}

fn failed(record: &Record) -> String {
    let fault = |run: &Run| run.fault.clone();
    format!("**failed**: {}", record.runs.iter().find_map(fault).unwrap_or_else(|| "no run".to_owned()))
}

fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

fn micros(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(micros) if micros >= 10.0 => format!("{micros:.1}"),
        Some(micros) if micros >= 1.0 => format!("{micros:.2}"),
        Some(micros) => format!("{micros:.4}"),
    }
}

/// Says so where the generator may have been the limit.
fn share(share: f64) -> String {
    format!("{:.0} %{}", share * 100.0, if share > GENERATOR_BUSY { " (busy)" } else { "" })
}

fn mebibytes(record: &Record) -> String {
    record.peak_rss_bytes.map_or_else(|| "–".to_owned(), |bytes| format!("{:.0}", bytes as f64 / 1_048_576.0))
}

/// How many, and a mark where less than the CPU asked for was used.
fn runs(record: &Record) -> String {
    let short = |median: &Median| {
        median.least_target_cpu_s.is_some_and(|least| least < record.workload.min_cpu_s)
            && matches!(record.workload.kind, Kind::Window | Kind::Fanin | Kind::Queue)
    };
    let mark = if record.median.as_ref().is_some_and(short) { " (short)" } else { "" };
    format!("{}{mark}", record.runs.len())
}

fn markdown(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    let line = |out: &mut String, cells: &mut dyn Iterator<Item = &str>| {
        for (cell, &width) in cells.zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(out, "| {cell:<width$} ");
        }
        out.push_str("|\n");
    };
    line(&mut out, &mut head.iter().copied());
    out.push_str(&widths.iter().map(|&width| format!("|{}", "-".repeat(width + 2))).collect::<String>());
    out.push_str("|\n");
    for row in &rows {
        line(&mut out, &mut row.iter().map(String::as_str));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_sensible_digits() {
        assert_eq!(rate(12_345_678.0), "12.35 M");
        assert_eq!(rate(66_123.0), "66.1 k");
        assert_eq!(micros(Some(0.0363)), "0.0363");
        assert_eq!(micros(Some(14.04)), "14.0");
        assert_eq!(share(0.91), "91 % (busy)");
    }

    #[test]
    fn columns_line_up() {
        let text = markdown(&["a", "long"], [vec!["xyz".to_owned(), "µ".to_owned()]].into_iter());
        assert_eq!(text, "| a   | long |\n|-----|------|\n| xyz | µ    |\n");
    }
}
