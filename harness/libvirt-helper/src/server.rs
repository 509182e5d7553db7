//! The inner process: one connection, one thread per request (libvirt's calls block, and libvirt itself keeps two calls
//! for one domain apart), and events as they come.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, Write as _};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use vlab_lab::machines::protocol::{DomainUsage, HelperAnswer, HelperCall, HelperLine, HelperRequest, PROTOCOL};

use crate::{account, events};

/// Exit code when there is no connection.
const REFUSED: u8 = 3;

struct Server {
    /// Never dropped: `virt` panics when libvirt does not like to close it, and the process is about to end anyway.
    connection: ManuallyDrop<Connect>,
    /// How domains are started.
    flags: virt::sys::virDomainCreateFlags,
    made: Mutex<BTreeSet<String>>,
}

pub(crate) fn serve(uri: &str) -> ExitCode {
    // The embedded driver's own folder: `qemu:///embed?root=<folder>`.
    if let Some((_, root)) = uri.split_once(":///embed?root=")
        && let Err(error) = account::ensure(&Path::new(root).join("etc"))
    {
        // libvirt may still open, or says itself what it lacks.
        eprintln!("vlab-libvirt-helper: cannot provide the account that libvirt looks for: {error}");
    }
    let server = match open(uri) {
        Ok(server) => Arc::new(server),
        Err(error) => {
            say(&HelperLine::Refused { why: words(&error) });
            return ExitCode::from(REFUSED);
        }
    };
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let request: HelperRequest = match serde_json::from_str(&line) {
            Ok(request) => request,
            Err(error) => {
                eprintln!("vlab-libvirt-helper: cannot understand a request: {error}: {line}");
                continue;
            }
        };
        let theirs = Arc::clone(&server);
        let id = request.id;
        let started = std::thread::Builder::new().name(format!("request-{id}")).spawn(move || {
            let result = theirs.call(&request.call);
            say(&HelperLine::Answer { id, result });
        });
        if let Err(error) = started {
            say(&HelperLine::Answer { id, result: Err(format!("no thread for the request: {error}")) });
        }
    }
    let made = std::mem::take(&mut *server.made.lock().unwrap_or_else(PoisonError::into_inner));
    std::thread::scope(|scope| {
        for name in made {
            let server = &server;
            scope.spawn(move || {
                if let Ok(domain) = Domain::lookup_by_name(&server.connection, &name) {
                    let _ = domain.destroy();
                }
            });
        }
    });
    ExitCode::SUCCESS
}

fn open(uri: &str) -> Result<Server, Error> {
    events::register_loop()?;
    std::thread::spawn(|| {
        let error = events::run_loop();
        // Without it no event comes and the embedded driver stands still: better no helper than a deaf one.
        eprintln!("vlab-libvirt-helper: libvirt's event loop has ended: {}", words(&error));
        std::process::exit(70);
    });
    let connection = ManuallyDrop::new(Connect::open(Some(uri))?);
    let hello = HelperLine::Hello {
        protocol: PROTOCOL,
        uri: connection.get_uri()?,
        libvirt: version(connection.get_lib_version()?),
        qemu: version(connection.get_hyp_version()?),
    };
    events::subscribe(
        &connection,
        Box::new(|domain, event| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            say(&HelperLine::Event { at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), domain, event });
        }),
    )?;
    say(&hello);
    // A daemon ends the domains of a client that dies. The embedded driver dies with its client and cannot.
    let flags = match uri.contains(":///embed") {
        true => virt::sys::VIR_DOMAIN_NONE,
        false => virt::sys::VIR_DOMAIN_START_AUTODESTROY,
    };
    Ok(Server { connection, flags, made: Mutex::default() })
}

/// libvirt counts a million for the first number and a thousand for the second.
fn version(number: u32) -> String {
    format!("{}.{}.{}", number / 1_000_000, number / 1000 % 1000, number % 1000)
}

impl Server {
    fn call(&self, call: &HelperCall) -> Result<HelperAnswer, String> {
        self.try_call(call).map_err(|error| words(&error))
    }

    fn domain(&self, name: &str) -> Result<Domain, Error> {
        Domain::lookup_by_name(&self.connection, name)
    }

    fn try_call(&self, call: &HelperCall) -> Result<HelperAnswer, Error> {
        match call {
            HelperCall::Create { xml, paused } => {
                let started = Instant::now();
                let flags = if *paused { self.flags | virt::sys::VIR_DOMAIN_START_PAUSED } else { self.flags };
                let domain = Domain::create_xml(&self.connection, xml, flags)?;
                let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(domain.get_name()?);
                return Ok(HelperAnswer::Started { took_us });
            }
            HelperCall::Destroy { domain } => self.domain(domain)?.destroy()?,
            HelperCall::Shutdown { domain } => {
                self.domain(domain)?.shutdown()?;
            }
            HelperCall::Reset { domain } => {
                self.domain(domain)?.reset()?;
            }
            HelperCall::Pause { domain } => {
                self.domain(domain)?.suspend()?;
            }
            HelperCall::Resume { domain } => {
                self.domain(domain)?.resume()?;
            }
            HelperCall::UpdateDevice { domain, xml, force } => {
                let force = if *force { virt::sys::VIR_DOMAIN_DEVICE_MODIFY_FORCE } else { 0 };
                self.domain(domain)?.update_device_flags(xml, virt::sys::VIR_DOMAIN_DEVICE_MODIFY_LIVE | force)?;
            }
            HelperCall::Monitor { domain, command } => {
                let text = self.domain(domain)?.qemu_monitor_command(&command.to_string(), 0)?;
                let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
                return Ok(HelperAnswer::Monitor { answer });
            }
            HelperCall::Usage { domain } => {
                let info = self.domain(domain)?.get_info()?;
                return Ok(HelperAnswer::Usage(DomainUsage {
                    memory_kib: info.memory,
                    cpus: info.nr_virt_cpu,
                    cpu_ns: info.cpu_time,
                }));
            }
            HelperCall::List => {
                let domains = self.connection.list_all_domains(0)?;
                return domains.iter().map(Domain::get_name).collect::<Result<_, _>>().map(HelperAnswer::Domains);
            }
        }
        Ok(HelperAnswer::Nothing)
    }
}

fn words(error: &Error) -> String {
    error.message().trim().to_owned()
}

/// One line to `vlab`. When nobody reads any more, stdin ends too, and that is what ends this program.
fn say(line: &HelperLine) {
    if let Ok(mut text) = serde_json::to_string(line) {
        text.push('\n');
        let mut stdout = io::stdout().lock();
        let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }
}
