//! `vlab matrix`: the plain installation in all combinations of topology, version, address family, firmware and target, and a table of
//! what came of it. Each combination is a scenario of its own, written beside the runs, so that each can be run again by itself.

use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;

use vlab_drive::prepare::Choices;
use vlab_drive::target::Target;
use vlab_reports::matrix::{Cell, Matrix, What};
use vlab_run::session::RunOrder;
use vlab_scenario::{HostKind, Scenario};

use crate::args::{Hosts, Options, interrupted};
use crate::error::{CliError, ExitResult, OrExit as _};
use crate::say;
use crate::scenario::{machines, prepare_hosts};
use crate::session::{How, Running, run_orders};
use crate::tools::{catalogue, load, print};

/// Folder of the scenarios, below that of the runs.
const FOLDER: &str = "matrix";

#[derive(clap::Args)]
pub(crate) struct MatrixArgs {
    /// Topologies.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", default_values_t = [Topology::Sno, Topology::Ha])]
    topology: Vec<Topology>,
    /// Versions of OpenShift.
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS", default_values_t = ["4.18".to_owned(), "4.20".to_owned(), "4.22".to_owned()])]
    openshift_version: Vec<String>,
    /// Families of the machines' addresses.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", default_values_t = [Family::Ipv4])]
    address_family: Vec<Family>,
    /// Firmware of virtual machines; simulated hosts have it only in their inventory.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAMES", default_values_t = [Firmware::Bios])]
    firmware: Vec<Firmware>,
    /// Services under test, as in `vlab scenario --service`; several times for several.
    #[arg(long, value_name = "TARGET", default_values_t = [Target::Simulated])]
    service: Vec<Target>,
    /// Time profile.
    #[arg(long, default_value = "fast")]
    time_profile: String,
    /// What hosts are: `sim` or `vm`.
    #[arg(long, env = "VLAB_HOSTS", value_name = "KIND", default_value = "sim")]
    hosts: Hosts,
    /// Seed of all random choices.
    #[arg(long)]
    seed: Option<u64>,
    /// Only write the scenarios, and say where.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    options: Options,
}

/// What is installed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    /// A single node.
    Sno,
    /// Two masters and an arbiter.
    Arbiter,
    /// Three masters.
    Compact,
    /// Three masters and two workers.
    Ha,
    /// Five masters.
    Five,
}

/// Families of addresses.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Ipv4,
    Ipv6,
    Dual,
}

/// Firmware of machines.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Firmware {
    Bios,
    Uefi,
}

fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// One combination, beside the target.
#[derive(Clone, Debug)]
struct Combination {
    topology: Topology,
    version: String,
    family: Family,
    firmware: Firmware,
}

impl Combination {
    fn name(&self) -> String {
        let Self { topology, version, family, firmware } = self;
        format!("matrix-{}-{}-{}-{version}", word(topology), word(family), word(firmware)).replace('.', "-")
    }

    /// The scenario: the plain installation, which must end well.
    fn scenario(&self, time_profile: &str) -> String {
        let Self { topology, version, family, firmware } = self;
        let pick = |of_ipv4: &str, of_ipv6: &str| match family {
            Family::Ipv4 => format!("[{of_ipv4}]"),
            Family::Ipv6 => format!("[{of_ipv6}]"),
            Family::Dual => format!("[{of_ipv4}, {of_ipv6}]"),
        };
        let (shape, masters) = match topology {
            Topology::Sno => ("sno", 1),
            Topology::Arbiter => ("compact", 2),
            Topology::Compact => ("compact", 3),
            Topology::Ha => ("ha", 3),
            Topology::Five => ("compact", 5),
        };
        let mut text = format!(
            "# Written by `vlab matrix`.\nversion: 1\nname: {name}\ndescription: The plain installation of {} with OpenShift {version}.\n\
             tags: [matrix]\nneeds: [postgres]\nservice: {{kind: simulated, time_profile: {time_profile}}}\n\
             cluster:\n  name: c\n  topology: {shape}\n  openshift_version: \"{version}\"\n  machine_networks: {}\n",
            word(topology),
            pick("192.168.126.0/24", "\"fd2e:6f44:5dd8::/64\""),
            name = self.name(),
        );
        if !matches!(topology, Topology::Sno | Topology::Compact | Topology::Ha) {
            let _ = writeln!(text, "  control_plane_count: {masters}");
        }
        if *family != Family::Ipv4 {
            let pods = pick("{cidr: 10.128.0.0/14, host_prefix: 23}", "{cidr: \"fd01::/48\", host_prefix: 64}");
            let services = pick("172.30.0.0/16", "\"fd02::/112\"");
            let _ = write!(text, "  cluster_networks: {pods}\n  service_networks: {services}\n");
        }
        if *topology != Topology::Sno {
            let (api, ingress) =
                (pick("192.168.126.100", "\"fd2e:6f44:5dd8::64\""), pick("192.168.126.101", "\"fd2e:6f44:5dd8::65\""));
            let _ = write!(text, "  api_vips: {api}\n  ingress_vips: {ingress}\n");
        }
        let machine = match firmware {
            Firmware::Bios => "",
            Firmware::Uefi => ", vm: {firmware: uefi}",
        };
        let group = |name: &str, count: u32, role: &str| {
            format!("  - {{name: {name}, count: {count}, role: {role}, kind: auto{machine}}}\n")
        };
        text.push_str("hosts:\n");
        text += &group("master", masters, if *topology == Topology::Sno { "auto" } else { "master" });
        match topology {
            Topology::Arbiter => text += &group("arbiter", 1, "arbiter"),
            Topology::Ha => text += &group("worker", 2, "worker"),
            Topology::Sno | Topology::Compact | Topology::Five => {}
        }
        text.push_str(
            "expect:\n  - {name: the cluster is installed, eventually: {cluster: c, status: installed}}\n\
             \x20 - {name: every host is installed, eventually: {hosts: all, status: installed}}\n\
             \x20 - {name: no host ends in error, never: {hosts: all, status: error}}\n\
             budgets: {install: 2h, total: 4h}\n",
        );
        text
    }
}

pub(crate) async fn matrix(args: MatrixArgs) -> ExitResult {
    let catalogue = catalogue()?;
    let runs = args.options.lab.runs();
    let folder = runs.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| CliError::inconclusive(format!("{}: {error}", folder.display())))?;
    let (mut cells, mut loaded) = (Vec::new(), Vec::new());
    for combination in args.combinations() {
        // As an absolute path: a session that is run again from elsewhere must find it.
        let file = folder.join(combination.name() + ".yaml");
        let file = std::path::absolute(&file).unwrap_or(file);
        fs::write(&file, combination.scenario(&args.time_profile)).or_inconclusive()?;
        let read = load(&catalogue, &file.display().to_string());
        for service in &args.service {
            cells.push(args.cell(&combination, service, &read));
        }
        if let Ok(read) = read {
            loaded.push(read);
        }
    }
    if args.dry_run {
        print(&format!("{} scenarios in {}\n", loaded.len(), folder.display()));
        return Ok(vlab_judge::result::exit::PASSED);
    }
    if loaded.is_empty() {
        return Err(CliError::nothing_selected(
            "none of these combinations can be installed; `vlab validate` says why",
        ));
    }
    let interrupted = interrupted();
    let hosts = Some(HostKind::from(args.hosts));
    let asked = Choices { hosts, service: args.service.first().cloned(), ..Choices::default() };
    let (ability, auto) = machines(&loaded, &asked, &args.options.lab, &interrupted).await?;
    let mut orders = Vec::new();
    for service in &args.service {
        let choices = Choices {
            seed: args.seed,
            service: Some(service.clone()),
            hosts,
            auto: auto.clone(),
            postgres_image: args.options.lab.postgres_image(),
            real_tools: args.options.lab.real_tools,
            hub: args.options.lab.hub()?,
            ..Choices::default()
        };
        for (scenario, text) in &loaded {
            let prepared = prepare_hosts(scenario.clone(), &catalogue, &choices).map_err(CliError::rendered)?;
            orders.push(RunOrder { prepared, text: text.clone(), repetition: 1, from: None });
        }
    }
    let running = Running { options: &args.options, how: &args.how, ability, interrupted };
    let ended = run_orders(&catalogue, orders, running).await?;
    let matrix = Matrix::new(&ended.session, &cells);
    print(&format!("\n{}", matrix.text()));
    write(&matrix, &ended.folder)?;
    Ok(ended.code)
}

/// Writes the table for people who were not there.
fn write(matrix: &Matrix<'_>, session: &Path) -> Result<(), CliError> {
    let page = session.join("matrix.html");
    // Sessions are two folders below the runs.
    fs::write(&page, matrix.html(|run| format!("../../{run}/report.html"))).or_inconclusive()?;
    fs::write(session.join("matrix.md"), matrix.markdown()).or_inconclusive()?;
    if std::io::stderr().is_terminal() {
        say(&format!("the same as a page: {}", page.display()));
    } else {
        print(&format!("matrix: {}\n", page.display()));
    }
    Ok(())
}

impl MatrixArgs {
    fn combinations(&self) -> Vec<Combination> {
        let mut all = Vec::new();
        for topology in &self.topology {
            for family in &self.address_family {
                for firmware in &self.firmware {
                    for version in &self.openshift_version {
                        all.push(Combination {
                            topology: *topology,
                            version: version.clone(),
                            family: *family,
                            firmware: *firmware,
                        });
                    }
                }
            }
        }
        all
    }

    fn cell(&self, combination: &Combination, service: &Target, read: &Result<(Scenario, Vec<u8>), CliError>) -> Cell {
        let mut row = word(&combination.topology);
        for (several, words) in [
            (self.address_family.len() > 1, word(&combination.family)),
            (self.firmware.len() > 1, word(&combination.firmware)),
            (self.service.len() > 1, service.to_string()),
        ] {
            if several {
                let _ = write!(row, " {words}");
            }
        }
        let what = match read {
            Ok((scenario, _)) => What::Run { scenario: scenario.name.clone(), service: service.to_string() },
            Err(error) => What::Nothing(error.first_line()),
        };
        Cell { row, column: combination.version.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use vlab_scenario::{Catalogue, SourceFile};

    use super::*;

    /// Every combination is a valid scenario, unless OpenShift of that version has no such cluster.
    #[test]
    fn every_combination_is_a_scenario_or_says_why_there_is_none() {
        let catalogue = Catalogue::embedded();
        let mut refused = Vec::new();
        for topology in Topology::value_variants() {
            for family in Family::value_variants() {
                for firmware in Firmware::value_variants() {
                    for version in ["4.16", "4.18", "4.20", "4.22", "5.0"] {
                        let combination = Combination {
                            topology: *topology,
                            version: version.to_owned(),
                            family: *family,
                            firmware: *firmware,
                        };
                        let text = combination.scenario("fast");
                        let source = SourceFile::new(combination.name(), text.clone().into_bytes());
                        match vlab_scenario::load(&source, &catalogue) {
                            Ok(scenario) => assert_eq!(scenario.name, combination.name()),
                            Err(error) => {
                                let shown = error.render(false);
                                assert!(shown.contains("or later"), "{text}\n{shown}");
                                refused.push(format!("{} {version}", word(topology)));
                            }
                        }
                    }
                }
            }
        }
        refused.sort();
        refused.dedup();
        assert_eq!(refused, ["arbiter 4.16", "arbiter 4.18", "five 4.16"]);
    }
}
