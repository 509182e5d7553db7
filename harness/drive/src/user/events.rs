//! Which events of a list are news. A list is read in pages by its offset, in the order of the events' times; the service writes an
//! event when its transaction ends, so that one may come to stand before others that were read already. A page therefore begins
//! some events before the first unread one, and each event is told once.

use vlab_api::types::Event;

/// How many events before the first unread one a page begins.
const OVERLAP: usize = 100;

/// More pages of one list are not read in the last look, which is more than any cluster has: a service that always has one more never
/// ends.
pub(super) const LAST_PAGES: u32 = 200;

/// A list of events that was read so far.
#[derive(Debug, Default)]
pub(super) struct EventList {
    /// In the order of the list.
    read: Vec<Event>,
    /// Pages that were read in the last look.
    last_pages: u32,
}

impl EventList {
    /// From where the next page is read.
    pub(super) fn offset(&self) -> i64 {
        i64::try_from(self.read.len().saturating_sub(OVERLAP)).unwrap_or(i64::MAX)
    }

    /// A page with news was read in the last look: is one more to be read?
    pub(super) fn has_a_page_left(&mut self) -> bool {
        self.last_pages += 1;
        self.last_pages < LAST_PAGES
    }

    /// What is news of a page that was read from [`EventList::offset`].
    pub(super) fn news(&mut self, page: Vec<Event>) -> Vec<Event> {
        let Some(begin) = page.first().map(|event| event.event_time) else { return Vec::new() };
        // Those of the same moment may stand before the page: of several equal ones as many are known as the page need not hold.
        let start = self.read.partition_point(|event| event.event_time < begin);
        let mut known: Vec<&Event> = self.read[start..].iter().collect();
        let mut news = Vec::new();
        for event in page {
            match known.iter().position(|old| **old == event) {
                Some(at) => drop(known.remove(at)),
                None => news.push(event),
            }
        }
        self.read.extend(news.iter().cloned());
        self.read.sort_by_key(|event| event.event_time);
        news
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vlab_api::Timestamp;

    use super::*;

    fn event(at: i64, name: &str) -> Event {
        Event { name: Some(name.to_owned()), event_time: Timestamp::from_secs(at), ..Event::default() }
    }

    fn page(all: &[Event], list: &EventList) -> Vec<Event> {
        all[usize::try_from(list.offset()).unwrap().min(all.len())..].to_vec()
    }

    #[test]
    fn a_list_without_end_is_given_up_and_no_other_with_it() {
        let (mut endless, mut other) = (EventList::default(), EventList::default());
        assert_eq!((1..1000).take_while(|_| endless.has_a_page_left()).count(), 199);
        assert!(other.has_a_page_left());
    }

    #[test]
    fn one_that_is_written_late_is_told_and_no_other_is_told_twice() {
        let mut list = EventList::default();
        let mut all = vec![event(1, "a"), event(3, "c")];
        assert_eq!(list.news(page(&all, &list)), all);
        all.insert(1, event(2, "b"));
        assert_eq!(list.news(page(&all, &list)), [event(2, "b")]);
        assert_eq!(list.news(page(&all, &list)), []);
        assert_eq!(list.offset(), 0);
    }

    #[test]
    fn two_equal_ones_are_two() {
        let mut list = EventList::default();
        let all = vec![event(1, "a"), event(1, "a")];
        assert_eq!(list.news(page(&all[..1], &list)).len(), 1);
        assert_eq!(list.news(page(&all, &list)).len(), 1);
        assert_eq!(list.news(page(&all, &list)).len(), 0);
    }

    proptest! {
        /// However late events are written, as long as not more than the overlap come after them, each is told once.
        #[test]
        fn each_is_told_once(
            delays in prop::collection::vec(0usize..OVERLAP / 2, 1..400),
            step in 1usize..60,
        ) {
            let mut written: Vec<(usize, Event)> =
                delays.iter().enumerate().map(|(n, delay)| (n + delay, event(n as i64, "x"))).collect();
            written.sort_by_key(|(at, _)| *at);
            let mut list = EventList::default();
            let mut told = Vec::new();
            for end in (step..written.len() + step).step_by(step) {
                let mut all: Vec<Event> = written[..end.min(written.len())].iter().map(|(_, e)| e.clone()).collect();
                all.sort_by_key(|e| e.event_time);
                told.extend(list.news(page(&all, &list)));
            }
            prop_assert_eq!(told.len(), written.len());
            told.sort_by_key(|e| e.event_time);
            told.dedup();
            prop_assert_eq!(told.len(), written.len());
        }
    }
}
