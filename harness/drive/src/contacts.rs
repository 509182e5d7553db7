//! What the service was told by hosts and answered well, in a form that does not grow with the time of a run: when they asked for
//! instructions, as one line for all the times between two silences, what they were given, as one line for all answers that are
//! the same, and the inventories that were taken.
//!
//! It is seen where hosts send and get answers, and is therefore known without the service, whatever the service is.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use uuid::Uuid;
use vlab_api::Timestamp;
use vlab_api::http::{Method, Request, Response, TransportError};
use vlab_api::types::{HostCreateParams, Inventory, Step, StepReply, Steps};
use vlab_model::disks::{Need, is_eligible};
use vlab_model::history::What;
use vlab_model::roles::{cpu_count, memory_bytes};

/// What a request means for the service's picture of a host.
#[derive(Debug)]
pub(crate) enum Contact {
    /// It asks for instructions.
    Asks(Uuid),
    /// It registers.
    Registers(Uuid),
    /// It tells its inventory.
    Inventory(Uuid, Box<Inventory>),
}

impl Contact {
    /// `None`: something else.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let path = request.split_path().0;
        match (request.method, path.strip_suffix("/instructions")) {
            (Method::Get, Some(host)) => Some(Self::Asks(last_id(host)?)),
            (Method::Post, Some(host)) => {
                let inventory = match request.body.as_object::<StepReply>() {
                    Some(reply) => inventory_of(reply),
                    None => inventory_of(&serde_json::from_slice(&request.body).ok()?),
                };
                Some(Self::Inventory(last_id(host)?, Box::new(inventory?)))
            }
            (Method::Post, None) if path.ends_with("/hosts") => {
                let host = match request.body.as_object::<HostCreateParams>() {
                    Some(params) => params.host_id,
                    None => serde_json::from_slice::<HostCreateParams>(&request.body).ok()?.host_id,
                };
                Some(Self::Registers(host))
            }
            _ => None,
        }
    }
}

/// The inventory that a reply tells, if it is about one that could be taken.
fn inventory_of(reply: &StepReply) -> Option<Inventory> {
    let is_one = reply.step_type.as_deref() == Some("inventory") && reply.exit_code.unwrap_or(0) == 0;
    is_one.then(|| serde_json::from_str(reply.output.as_deref()?).ok()).flatten()
}

fn last_id(path: &str) -> Option<Uuid> {
    path.rsplit('/').next()?.parse().ok()
}

/// The times at which a host asked, since its last silence.
#[derive(Debug)]
struct Stretch {
    from: Timestamp,
    to: Timestamp,
    count: u64,
    longest: Duration,
    tried: Timestamp,
}

/// Answers to a host that are the same.
#[derive(Debug)]
struct Same {
    from: Timestamp,
    /// When the last question was sent, and when its answer came.
    last: (Timestamp, Timestamp),
    count: u64,
    longest: Duration,
    steps: Vec<String>,
    next: i64,
    exit: bool,
}

impl Same {
    fn new((sent, now): (Timestamp, Timestamp), answer: &Steps) -> Self {
        Self {
            from: sent,
            last: (sent, now),
            count: 1,
            longest: now.since(sent),
            steps: kinds(answer).map(str::to_owned).collect(),
            next: answer.next_instruction_seconds.unwrap_or(0),
            exit: is_exit(answer),
        }
    }

    fn has(&self, answer: &Steps) -> bool {
        self.next == answer.next_instruction_seconds.unwrap_or(0)
            && self.exit == is_exit(answer)
            && self.steps.iter().map(String::as_str).eq(kinds(answer))
    }

    fn told(self, host: Uuid) -> What {
        let Self { from, last: (_, to), count, longest, steps, next, exit } = self;
        What::Instructed { host, from, to, count, longest_ms: whole_ms(longest), steps, next, exit }
    }
}

fn kinds(answer: &Steps) -> impl Iterator<Item = &str> {
    answer.instructions.iter().flatten().map(|step: &Step| step.step_type.as_deref().unwrap_or_default())
}

fn is_exit(answer: &Steps) -> bool {
    answer.post_step_action.as_deref() == Some("exit")
}

fn whole_ms(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// How a question ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The service answered that it is done.
    Done,
    /// It answered that it is not.
    Refused,
    /// No answer came.
    Unanswered,
}

impl Ended {
    /// Of the result of a request.
    pub(crate) fn of(result: &Result<Response, TransportError>) -> Self {
        match result {
            Ok(response) if response.is_success() => Self::Done,
            // Nobody has heard it.
            Ok(_) | Err(TransportError::Connect(_)) => Self::Refused,
            Err(_) => Self::Unanswered,
        }
    }
}

/// What was seen of hosts so far.
#[derive(Debug)]
pub(crate) struct Contacts {
    /// After this it was silent.
    silence: Duration,
    hosts: BTreeMap<Uuid, Stretch>,
    /// How many of their questions are on their way: not those of none.
    asking: BTreeMap<Uuid, u32>,
    instructed: BTreeMap<Uuid, Same>,
    /// What was told last, and when the first that said so was sent.
    inventories: BTreeMap<Uuid, (What, Timestamp)>,
    news: Vec<What>,
}

impl Contacts {
    /// Of hosts that are silent when they have not asked for so long.
    pub(crate) fn new(silence: Duration) -> Self {
        Self {
            silence,
            hosts: BTreeMap::new(),
            asking: BTreeMap::new(),
            instructed: BTreeMap::new(),
            inventories: BTreeMap::new(),
            news: Vec::new(),
        }
    }

    /// A question is sent. Its end is told, too.
    pub(crate) fn begun(&mut self, contact: &Contact) {
        if let Contact::Asks(host) | Contact::Registers(host) = contact {
            *self.asking.entry(*host).or_default() += 1;
        }
    }

    /// A question that was sent at `sent` has come to its end.
    pub(crate) fn ended(&mut self, (sent, now): (Timestamp, Timestamp), contact: Contact, how: Ended) {
        if let Contact::Asks(host) | Contact::Registers(host) = &contact
            && let Entry::Occupied(mut asking) = self.asking.entry(*host)
        {
            match asking.get().checked_sub(1).filter(|left| *left > 0) {
                Some(left) => _ = asking.insert(left),
                None => _ = asking.remove(),
            }
        }
        match (contact, how) {
            (Contact::Asks(host) | Contact::Registers(host), _) => self.polled(host, (sent, now), how == Ended::Done),
            (Contact::Inventory(..), Ended::Refused) => {}
            (Contact::Inventory(host, inventory), _) => self.took(host, sent, &inventory, how == Ended::Unanswered),
        }
    }

    fn polled(&mut self, host: Uuid, (sent, now): (Timestamp, Timestamp), well: bool) {
        let new = || Stretch { from: sent, to: sent, count: 1, longest: Duration::ZERO, tried: now };
        match self.hosts.get_mut(&host) {
            // Who was never answered is not known to the service.
            None if !well => {}
            None => _ = self.hosts.insert(host, new()),
            Some(stretch) if !well => stretch.tried = stretch.tried.max(now),
            Some(stretch) => {
                let gap = sent.since(stretch.to);
                if gap > self.silence {
                    let mut past = std::mem::replace(stretch, new());
                    if self.asking.contains_key(&host) {
                        // One of before its reboot: the service may have heard it at any time until now.
                        past.tried = now;
                    }
                    self.news.push(told(host, &past));
                } else {
                    (stretch.to, stretch.tried) = (stretch.to.max(sent), stretch.tried.max(now));
                    stretch.count += 1;
                    stretch.longest = stretch.longest.max(gap);
                }
            }
        }
    }

    /// A host that asked at `sent` was answered that.
    pub(crate) fn instructed(&mut self, host: Uuid, (sent, now): (Timestamp, Timestamp), answer: &Steps) {
        if let Some(same) = self.instructed.get_mut(&host)
            && same.has(answer)
            && sent.since(same.last.0) <= self.silence
        {
            // Of two that were on their way together, the later one may be answered first.
            same.longest = same.longest.max(now.since(same.last.0)).max(now.since(sent));
            same.last = (same.last.0.max(sent), same.last.1.max(now));
            same.from = same.from.min(sent);
            same.count += 1;
            return;
        }
        let past = self.instructed.insert(host, Same::new((sent, now), answer));
        self.news.extend(past.map(|past| past.told(host)));
    }

    fn took(&mut self, host: Uuid, sent: Timestamp, inventory: &Inventory, unanswered: bool) {
        let memory = inventory.memory.as_ref();
        let all = inventory.disks.as_deref().unwrap_or_default();
        // Of any version: the newest takes most kinds of disks.
        let need = Need::new(0, "", inventory);
        let sizes = all.iter().filter(|disk| is_eligible(disk, all, &need)).map(|disk| disk.size_bytes.unwrap_or(0));
        let summary = |sent| What::Inventory {
            host,
            sent,
            cores: cpu_count(inventory),
            memory: memory_bytes(inventory),
            meminfo: memory.and_then(|m| m.physical_bytes_method.as_deref()) == Some("meminfo"),
            disk: sizes.clone().max(),
            name: inventory.hostname.clone().unwrap_or_default(),
            unanswered,
        };
        let content = summary(Timestamp::UNSET);
        // One that was sent before and is answered later was in force before, too.
        let is_told = self.inventories.get(&host).is_some_and(|(told, first)| *told == content && sent >= *first);
        if unanswered || !is_told {
            if !unanswered {
                self.inventories.insert(host, (content, sent));
            }
            // As the history says it, and as the service's own times are: what it made of it in the same millisecond came later.
            self.news.push(summary(Timestamp::from_micros(sent.as_micros().div_euclid(1000) * 1000)));
        }
    }

    /// What is to be written down, since the last call.
    pub(crate) fn take(&mut self) -> Vec<What> {
        std::mem::take(&mut self.news)
    }

    /// The run is over: what is not written down yet.
    pub(crate) fn finish(&mut self, now: Timestamp) -> Vec<What> {
        let mut all = self.take();
        for (host, mut stretch) in std::mem::take(&mut self.hosts) {
            if self.asking.contains_key(&host) {
                stretch.tried = now;
            }
            all.push(told(host, &stretch));
        }
        all.extend(std::mem::take(&mut self.instructed).into_iter().map(|(host, same)| same.told(host)));
        all
    }
}

fn told(host: Uuid, stretch: &Stretch) -> What {
    let Stretch { from, to, count, longest, tried } = *stretch;
    What::Polls { host, from, to, count, longest_ms: whole_ms(longest), tried }
}

#[cfg(test)]
mod tests {
    use vlab_api::ops;
    use vlab_api::types::{Cpu, Memory};

    use super::*;

    const HOST: Uuid = Uuid::from_u128(7);
    const ENV: Uuid = Uuid::from_u128(8);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_secs(seconds)
    }

    fn poll() -> Contact {
        Contact::of(&ops::get_next_steps(ENV, HOST, 0).request).unwrap()
    }

    fn ask(contacts: &mut Contacts, sent: i64, now: i64) -> Vec<What> {
        contacts.begun(&poll());
        contacts.ended((at(sent), at(now)), poll(), Ended::Done);
        contacts.take()
    }

    #[test]
    fn many_polls_are_one_line_for_each_time_between_two_silences() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        for n in 0..1000 {
            contacts.ended((at(n * 60), at(n * 60 + 1)), poll(), Ended::Done);
        }
        // In vain: it is not silent yet, and was not answered.
        contacts.ended((at(60_000), at(60_030)), poll(), Ended::Unanswered);
        assert_eq!(contacts.take(), []);
        contacts.ended((at(61_000), at(61_001)), poll(), Ended::Done);
        let (from, to, tried) = (at(0), at(59_940), at(60_030));
        assert_eq!(contacts.take(), [What::Polls { host: HOST, from, to, count: 1000, longest_ms: 60_000, tried }]);
        let end = contacts.finish(at(62_000));
        assert!(matches!(end[..], [What::Polls { count: 1, from, .. }] if from == at(61_000)), "{end:?}");
    }

    /// A host that reboots while an answer is held back asks anew, and the old question is not over: who knows when it was heard.
    #[test]
    fn a_question_on_its_way_is_no_silence() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        assert_eq!([ask(&mut contacts, 0, 1), ask(&mut contacts, 60, 61)], [[], []]);
        contacts.begun(&poll());
        let told = |from, to, count, longest_ms, tried| What::Polls { host: HOST, from, to, count, longest_ms, tried };
        assert_eq!(ask(&mut contacts, 600, 601), [told(at(0), at(60), 2, 60_000, at(601))]);
        // The held answer comes at last, and the next silence is one.
        contacts.ended((at(120), at(720)), poll(), Ended::Done);
        assert_eq!(ask(&mut contacts, 1000, 1001), [told(at(600), at(600), 2, 0, at(720))]);
        contacts.begun(&poll());
        assert_eq!(contacts.finish(at(2000)), [told(at(1000), at(1000), 1, 0, at(2000))]);
    }

    #[test]
    fn answers_that_are_the_same_are_one_line() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        let steps = |kinds: &[&str], next| Steps {
            next_instruction_seconds: Some(next),
            post_step_action: Some("continue".into()),
            instructions: Some(
                kinds.iter().map(|k| Step { step_type: Some((*k).into()), ..Step::default() }).collect(),
            ),
        };
        let two = steps(&["inventory", "ntp-synchronizer"], 60);
        for n in 0..10 {
            contacts.instructed(HOST, (at(n * 60), at(n * 60 + 1)), &two);
        }
        assert_eq!(contacts.take(), []);
        contacts.instructed(HOST, (at(600), at(602)), &steps(&["inventory"], 120));
        let told = |from, to, count, longest_ms, kinds: &[&str], next| What::Instructed {
            host: HOST,
            from: at(from),
            to: at(to),
            count,
            longest_ms,
            steps: kinds.iter().map(|k| (*k).to_owned()).collect(),
            next,
            exit: false,
        };
        assert_eq!(contacts.take(), [told(0, 541, 10, 61_000, &["inventory", "ntp-synchronizer"], 60)]);
        // After a silence it may have been answered something else in between.
        contacts.instructed(HOST, (at(800), at(801)), &steps(&["inventory"], 120));
        assert_eq!(contacts.take(), [told(600, 602, 1, 2_000, &["inventory"], 120)]);
        assert_eq!(contacts.finish(at(900)), [told(800, 801, 1, 1_000, &["inventory"], 120)]);
    }

    #[test]
    fn to_register_is_to_be_there_and_other_requests_are_not() {
        let params = HostCreateParams { host_id: HOST, discovery_agent_version: None };
        let registers = Contact::of(&ops::register_host(ENV, &params).request);
        assert!(matches!(registers, Some(Contact::Registers(HOST))), "{registers:?}");
        assert!(Contact::of(&ops::get_cluster(ENV).request).is_none());
        let reply = StepReply { step_type: Some("ntp-synchronizer".into()), ..StepReply::default() };
        assert!(Contact::of(&ops::post_step_reply(ENV, HOST, &reply).request).is_none());
    }

    #[test]
    fn an_inventory_is_told_when_it_is_taken_and_is_another() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        let mut tell = |seconds: i64, cores: i64, how: Ended| {
            let inventory = Inventory {
                cpu: Some(Cpu { count: Some(cores), ..Cpu::default() }),
                memory: Some(Memory { physical_bytes: Some(1 << 34), ..Memory::default() }),
                hostname: Some("n".into()),
                ..Inventory::default()
            };
            let reply = StepReply {
                step_type: Some("inventory".into()),
                output: serde_json::to_string(&inventory).ok(),
                ..StepReply::default()
            };
            let contact = Contact::of(&ops::post_step_reply(ENV, HOST, &reply).request).unwrap();
            contacts.ended((at(seconds), at(seconds + 1)), contact, how);
            contacts.take().len()
        };
        let told = [(4, Ended::Refused), (4, Ended::Done), (4, Ended::Done), (8, Ended::Done), (9, Ended::Unanswered)];
        let told = told.into_iter().zip(1..).map(|((cores, how), seconds)| tell(seconds, cores, how));
        assert_eq!(told.collect::<Vec<_>>(), [0, 1, 0, 1, 1]);
    }

    /// The agent was restarted while the answer was on its way: what it said before is what the service has had since then.
    #[test]
    fn an_inventory_that_was_sent_before_is_told_when_its_answer_comes_after() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        let mut took = |sent: i64| {
            contacts.took(HOST, at(sent), &Inventory::default(), false);
            contacts.take().len()
        };
        assert_eq!([took(90), took(10), took(20), took(95)], [1, 1, 0, 0]);
    }

    /// What the service makes of it in the same millisecond must not look as if it came before.
    #[test]
    fn an_inventory_is_sent_at_a_whole_millisecond() {
        let mut contacts = Contacts::new(Duration::from_secs(150));
        contacts.took(HOST, Timestamp::from_micros(170_400), &Inventory::default(), false);
        assert!(
            matches!(contacts.take()[..], [What::Inventory { sent, .. }] if sent == Timestamp::from_micros(170_000))
        );
    }
}
