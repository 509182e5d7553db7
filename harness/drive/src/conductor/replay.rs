//! Bringing a conductor to where another one was, by its journal.

use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::actor::Reply;
use vlab_model::history::{Source, What};

use super::Conductor;
use crate::journal::{Answer, Entry, Left, ReplayError, Shift, order_words, sent_words, task_words};

impl Entry {
    pub(super) fn answer(now: Timestamp, reply: &Reply) -> Self {
        let (at, connection, tag) = (now.as_micros(), reply.connection, reply.tag);
        Self::Answer { at, connection, tag, answer: Answer::from(&reply.result) }
    }

    pub(super) fn seen(now: Timestamp, source: Source, service_time: Option<Timestamp>, what: &What) -> Self {
        let (at, service_time) = (now.as_micros(), service_time.map(Timestamp::as_micros));
        Self::Seen { at, source, service_time, what: Box::new(what.clone()) }
    }

    pub(super) fn machine_answered(
        now: Timestamp,
        host: Option<Uuid>,
        request: &str,
        status: u16,
        took: Duration,
        bad: bool,
    ) -> Self {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        Self::MachineAnswered { at: now.as_micros(), host, request: request.to_owned(), status, took, bad }
    }
}

impl Conductor {
    /// Writes into the journal, where there is one.
    pub(super) fn enter(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(journal) = &mut self.journal {
            journal.push(entry());
        }
    }

    /// Was that seen at which the run is to be frozen?
    pub fn is_to_freeze(&self) -> bool {
        self.freeze.as_ref().is_some_and(|tracker| tracker.complete(&self.directory).is_some())
    }

    /// The faults that have begun and are not over.
    pub fn faults_under_way(&self) -> Vec<String> {
        self.faults.under_way()
    }

    /// Everything it was told and wanted, to the end: nothing more is to happen in this run.
    pub fn close_journal(&mut self) -> Vec<Entry> {
        let mut journal = self.journal.take().unwrap_or_default();
        let sent = sent_words(&self.take_sends());
        let (tasks, orders) = (task_words(&self.take_tasks()), order_words(&self.take_machine_orders()));
        journal.push(Entry::Left { sent, tasks, orders });
        journal
    }

    /// Is told what another one was told, each time moved, and compares what it wants with what that one wanted. What was left to do is given
    /// back, and what was done to machines.
    ///
    /// # Errors
    /// It wants something else, or the journal cannot be understood.
    pub fn replay(
        &mut self,
        journal: impl Iterator<Item = Result<Entry, ReplayError>>,
        shift: &Shift,
    ) -> Result<Left, ReplayError> {
        let mut done = Vec::new();
        for (line, entry) in journal.enumerate() {
            match entry? {
                Entry::Start { at } => self.start(shift.at(at)),
                Entry::Wake { at } => self.wake(shift.at(at)),
                Entry::Ending { at } => drop(self.ending(shift.at(at))),
                Entry::Answer { at, connection, tag, answer } => {
                    let result = answer.into_result().map_err(|e| ReplayError::Unreadable(line + 1, e.to_string()))?;
                    self.deliver(shift.at(at), Reply { connection, tag, result });
                }
                Entry::Seen { at, source, service_time, what } => {
                    self.observe(shift.at(at), source, service_time.map(|time| shift.at(time)), *what);
                }
                Entry::MachineAnswered { at, host, request, status, took, bad } => {
                    let what = (request, status, Duration::from_micros(took));
                    self.machine_was_answered(shift.at(at), host, what, bad);
                }
                Entry::Done { at, fault, how } => self.task_done(shift.at(at), &fault, &how),
                Entry::Sent { what } => {
                    let sends = self.take_sends();
                    self.same(&what, &sent_words(&sends))?;
                }
                Entry::Tasks { what } => {
                    let tasks = self.take_tasks();
                    self.same(&what, &task_words(&tasks))?;
                }
                Entry::Orders { what } => {
                    let orders = self.take_machine_orders();
                    self.same(&what, &order_words(&orders))?;
                    done.extend(orders);
                }
                Entry::Left { sent, tasks, orders } => {
                    let left = Left {
                        sends: self.take_sends(),
                        tasks: self.take_tasks(),
                        orders: self.take_machine_orders(),
                        done,
                    };
                    self.same(&sent, &sent_words(&left.sends))?;
                    self.same(&tasks, &task_words(&left.tasks))?;
                    self.same(&orders, &order_words(&left.orders))?;
                    return Ok(left);
                }
            }
        }
        Err(ReplayError::Unfinished)
    }

    fn same(&self, then: &[String], now: &[String]) -> Result<(), ReplayError> {
        if then == now {
            return Ok(());
        }
        let differ = then.iter().zip(now).position(|(then, now)| then != now).unwrap_or(then.len().min(now.len()));
        let word = |words: &[String]| words.get(differ).map_or("nothing".to_owned(), |word| format!("\"{word}\""));
        let after = self.now.since(self.started.unwrap_or(self.now)).as_secs();
        Err(ReplayError::Otherwise { after, now: word(now), then: word(then) })
    }
}
