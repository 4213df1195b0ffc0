//! Tables of work queues: speed, and memory at rest.

use super::{failed, keys, markdown, mebibytes, micros, rate, runs, share};
use crate::result::{Held, Median, Record, Run, median};

/// Messages per second and CPU of each, beside what is wanted.
pub fn speed(records: &[&Record]) -> String {
    let head = [
        "work queue",
        "over",
        "writers",
        "messages/s",
        "CPU µs each",
        "wanted",
        "relay/s",
        "least / most",
        "generator",
        "peak MiB",
        "runs",
    ];
    let row = |record: &&Record| {
        let mut cells = keys(record).to_vec();
        let Some(figures) = &record.median else {
            cells.push(failed(record));
            cells.extend(vec!["–".to_owned(); 7]);
            return cells;
        };
        let relay = record.relay.as_ref().and_then(|relay| relay.median.as_ref());
        let even = of_runs(record, |run| run.shares.as_ref().map(crate::result::Shares::least_by_most));
        cells.extend([
            rate(figures.deliveries_per_s),
            micros(figures.cpu_us_per_delivery),
            wanted_speed(record, figures),
            relay.map_or_else(|| "–".to_owned(), |median| rate(median.deliveries_per_s)),
            even.map_or_else(|| "–".to_owned(), |even| format!("{even:.2}")),
            share(figures.generator_share),
            mebibytes(record),
            runs(record),
        ]);
        cells
    };
    markdown(&head, records.iter().map(row))
}

/// Memory of each message or queue, beside what is wanted.
pub fn memory(records: &[&Record]) -> String {
    let head = [
        "held",
        "over",
        "writers",
        "how many",
        "frame",
        "resident bytes each",
        "over the frame",
        "wanted",
        "left after",
        "peak MiB",
        "runs",
    ];
    let row = |record: &&Record| {
        let mut cells = keys(record).to_vec();
        let of = |value: fn(&Held) -> f64| of_runs(record, |run| run.held.as_ref().map(value));
        let (Some(count), Some(over)) =
            (of(|held| held.count as f64), of(|held| held.resident_bytes_each_over_frame))
        else {
            cells.push(failed(record));
            cells.extend(vec!["–".to_owned(); 7]);
            return cells;
        };
        let whole = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"));
        let wanted = record.workload.wanted.bytes.map(|most| verdict(&format!("≤ {most:.0}"), over <= most));
        cells.extend([
            whole(Some(count)),
            whole(of(|held| held.frame_bytes)),
            whole(of(|held| held.resident_bytes_each)),
            whole(Some(over)),
            wanted.unwrap_or_else(|| "–".to_owned()),
            whole(of(|held| held.resident_bytes_each_after)),
            mebibytes(record),
            runs(record),
        ]);
        cells
    };
    markdown(&head, records.iter().map(row))
}

/// Median over the repetitions; `None` if one of them lacks the value.
fn of_runs(record: &Record, value: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    let values = record.runs.iter().map(value).collect::<Option<Vec<f64>>>()?;
    (!values.is_empty()).then(|| median(values))
}

fn wanted_speed(record: &Record, figures: &Median) -> String {
    let wanted = record.workload.wanted;
    let speed =
        wanted.per_s.map(|least| verdict(&format!("≥ {}", rate(least)), figures.deliveries_per_s >= least));
    let cpu = wanted.cpu_us.zip(figures.cpu_us_per_delivery);
    let cpu = cpu.map(|(most, used)| verdict(&format!("≤ {most} µs"), used <= most));
    let both: Vec<String> = [speed, cpu].into_iter().flatten().collect();
    if both.is_empty() { "–".to_owned() } else { both.join(", ") }
}

/// Says so where a figure is not reached.
fn verdict(wanted: &str, is_reached: bool) -> String {
    if is_reached { wanted.to_owned() } else { format!("{wanted} (missed)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_missed_is_marked() {
        assert_eq!(verdict("≥ 600.0 k", true), "≥ 600.0 k");
        assert_eq!(verdict("≤ 1.2 µs", false), "≤ 1.2 µs (missed)");
    }
}
