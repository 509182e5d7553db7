//! Many hosts drawn together: how many of a group had each status, and each stage, over time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{Markup, html};

use super::Page;
use super::colours::{Bar, Legend};
use super::drawing::Drawing;
use crate::text::thousands;
use crate::timeline::{Lane, natural};

/// Heights in pixels: of a group, and of the part for its stages.
const GROUP: u32 = 86;
const STAGES: u32 = 36;
/// More groups than these are drawn as one.
const MOST: usize = 12;
/// Columns of an area, and the height of its picture in units of its own.
const COLUMNS: usize = 400;
const UNITS: f64 = 1000.0;

impl Page<'_> {
    /// Hosts of one kind together, by their names without numbers.
    pub(super) fn groups(&self, d: &mut Drawing) {
        let mut groups: BTreeMap<&str, Vec<&Lane<'_>>> = BTreeMap::new();
        for host in &self.timeline.hosts {
            let stem = natural(&host.name).0.trim_end_matches('-');
            groups.entry(stem).or_default().push(host);
        }
        if groups.len() > MOST {
            groups = BTreeMap::from([("hosts", self.timeline.hosts.iter().collect())]);
        }
        for (stem, hosts) in groups {
            let name = format!("{} hosts", thousands(hosts.len() as u64));
            let staged = hosts.iter().any(|h| !h.stages.is_empty());
            let height = GROUP + if staged { STAGES } else { 0 };
            d.lane("group", height, (name, html! { i { (self.short(stem, 40)) } }), |legend, y| {
                html! {
                    (self.area(legend, &hosts, Bar::Statuses, (y + 6, 74)))
                    (self.area(legend, &hosts, Bar::Stages, (y + 84, 28)))
                }
            });
        }
    }

    /// Stacked areas: how many of `hosts` had each value of the bar at each moment.
    fn area(&self, legend: &mut Legend, hosts: &[&Lane<'_>], bar: Bar, (y, height): (u32, u32)) -> Markup {
        let changes = self.changes(hosts, bar);
        let mut stack = Stack { below: vec![0; COLUMNS], of: hosts.len() };
        let mut layers = Vec::new();
        for value in bar.values_of_hosts() {
            if let Some(layer) = changes.get(value).and_then(|changes| stack.put(changes)) {
                legend.note(bar.colour(value), value);
                layers.push((value, layer));
            }
        }
        html! {
            svg.area y=(y) width="100%" height=(height) viewBox={ "0 0 " (COLUMNS) " " (UNITS as u32) } preserveAspectRatio="none" {
                @for (value, layer) in layers {
                    path class=(bar.colour(value)) d=(layer.path) {
                        title { (value) ": at most " (thousands(layer.most)) " of " (thousands(hosts.len() as u64)) }
                    }
                }
            }
        }
    }

    /// For each value, by how much the number of hosts that have it changes in each column.
    fn changes<'h>(&self, hosts: &[&Lane<'h>], bar: Bar) -> BTreeMap<&'h str, Vec<i64>> {
        let step = self.axis.length as f64 * 1.012 / COLUMNS as f64;
        // Where a moment falls among the middles of the columns.
        let column = |at: i64| (((at + self.axis.shift) as f64 / step - 0.5).ceil().max(0.0) as usize).min(COLUMNS);
        let mut changes: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for span in hosts.iter().flat_map(|host| bar.of(host)) {
            let of_value = changes.entry(span.value).or_insert_with(|| vec![0; COLUMNS + 1]);
            of_value[column(span.from)] += 1;
            of_value[column(span.to)] -= 1;
        }
        changes
    }
}

/// Areas on top of each other.
struct Stack {
    /// How many hosts the areas so far have in each column.
    below: Vec<i64>,
    /// How many hosts are the whole height.
    of: usize,
}

/// An area of a stack.
struct Layer {
    /// Its outline, as SVG writes it.
    path: String,
    /// The most hosts that it has at once.
    most: u64,
}

impl Stack {
    /// Puts an area on top. `None` when it has no host in any column.
    fn put(&mut self, changes: &[i64]) -> Option<Layer> {
        let of = self.of.max(1) as f64;
        let edge = |count: i64| (UNITS - count as f64 / of * UNITS).round() as i64;
        let (mut now, mut most) = (0_i64, 0_i64);
        // Columns in which something changes, with the lower and the upper edge from there on.
        let mut steps: Vec<(usize, i64, i64)> = Vec::new();
        for (i, (change, below)) in changes.iter().zip(&mut self.below).enumerate() {
            now += change;
            most = most.max(now);
            let (low, high) = (edge(*below), edge(*below + now));
            if steps.last().map(|(_, l, h)| (*l, *h)) != Some((low, high)) {
                steps.push((i, low, high));
            }
            *below += now;
        }
        (most > 0).then(|| Layer { path: outline(&steps), most: most.unsigned_abs() })
    }
}

/// Along the upper edges to the right, and along the lower ones back.
fn outline(steps: &[(usize, i64, i64)]) -> String {
    let end = |n: usize| steps.get(n + 1).map_or(COLUMNS, |next| next.0);
    let mut path = String::new();
    for (n, (i, _, high)) in steps.iter().enumerate() {
        let _ = write!(path, "{}{i},{high}H{}", if n == 0 { "M" } else { "L" }, end(n));
    }
    for (n, (i, low, _)) in steps.iter().enumerate().rev() {
        let _ = write!(path, "L{},{low}H{i}", end(n));
    }
    path.push('z');
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_stand_on_each_other() {
        let mut stack = Stack { below: vec![0; COLUMNS], of: 4 };
        let changes = |at: &[(usize, i64)]| {
            let mut changes = vec![0; COLUMNS + 1];
            at.iter().for_each(|(column, by)| changes[*column] += by);
            changes
        };
        let lower = stack.put(&changes(&[(0, 1), (100, 1), (COLUMNS, -2)])).unwrap();
        assert_eq!((lower.path.as_str(), lower.most), ("M0,750H100L100,500H400L400,1000H100L100,1000H0z", 2));
        assert!(stack.put(&changes(&[])).is_none());
        let upper = stack.put(&changes(&[(0, 2), (COLUMNS, -2)])).unwrap();
        assert_eq!((upper.path.as_str(), upper.most), ("M0,250H100L100,0H400L400,500H100L100,750H0z", 2));
    }
}
