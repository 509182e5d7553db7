//! Who noticed what is most like an alteration is asked first.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often each of those who are asked, by its place among them, noticed an alteration of a kind.
#[derive(Debug, Default)]
pub struct Hits(Mutex<BTreeMap<(String, usize), usize>>);

impl Hits {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, usize), usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often each place noticed one of its row, and one of its family that is wrong in the same way, at this moment.
    pub fn of(&self, name: &str) -> impl Fn(usize) -> [usize; 2] + use<> {
        let kinds = kinds(name);
        let all = self.all();
        let of_kind = |kind: &String| -> BTreeMap<usize, usize> {
            all.iter().filter(|((k, _), _)| k == kind).map(|((_, place), count)| (*place, *count)).collect()
        };
        let counts = kinds.each_ref().map(of_kind);
        move |place| counts.each_ref().map(|counts| counts.get(&place).copied().unwrap_or_default())
    }

    /// That place noticed it.
    pub fn add(&self, name: &str, place: usize) {
        let mut all = self.all();
        kinds(name).into_iter().for_each(|kind| *all.entry((kind, place)).or_default() += 1);
    }
}

/// What an alteration has in common with others, the closest first: the row, and the family with what is wrong.
fn kinds(name: &str) -> [String; 2] {
    let (row, how) = name.rsplit_once('/').unwrap_or((name, ""));
    let family = row.split('/').next().unwrap_or_default();
    [row.to_owned(), format!("{family}/*/{how}")]
}
