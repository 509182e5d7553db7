//! The service under test, and the infra-env.

use std::collections::BTreeMap;

use vlab_api::types::ImageType;
use vlab_model::settings::{SettingError, Settings};

use super::api::INFRA_ENV;
use super::{Checker, Place};
use crate::file::{InfraEnvFile, ServiceFile};
use crate::types::{InfraEnv, Service};
use crate::words::{Need, ServiceKind};

const ARCHITECTURES: &[&str] = &["x86_64", "aarch64", "arm64", "ppc64le", "s390x"];

impl Checker<'_> {
    pub(super) fn service(&mut self, file: Option<&ServiceFile>) -> Service {
        let none = ServiceFile::default();
        let file = file.unwrap_or(&none);
        let kind = self.read_option(&file.kind).unwrap_or(ServiceKind::Simulated);
        self.images(file, kind);
        self.program(file, kind);
        self.url(file, kind);
        Service {
            kind,
            settings: self.settings(file, kind),
            time_profile: self.time_profile(file),
            url: file.url.as_ref().map(|u| u.text.clone()),
            program: file.program.as_ref().map(|p| p.text.clone()),
            image: file.image.as_ref().map(|i| i.text.clone()),
            postgres_image: file.postgres_image.as_ref().map(|i| i.text.clone()),
            replicas: self.replicas(file, kind),
        }
    }

    fn replicas(&mut self, file: &ServiceFile, kind: ServiceKind) -> u64 {
        let Some(count) = &file.replicas else { return 1 };
        let number =
            self.number(count, "the number of replicas", 1, 5).and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
        if number > 1 && !matches!(kind, ServiceKind::Simulated | ServiceKind::Process) {
            let help = "remove it, or write `kind: process`";
            let why = "only a service that is a program of this computer is started more than once";
            self.refuse(&count.span, why, "not built for this kind", help);
        }
        number
    }

    /// What several replicas cannot do without.
    pub(super) fn replicas_fit(&mut self, file: Option<&ServiceFile>, replicas: u64, needs: &[Need]) {
        let Some(count) = file.and_then(|file| file.replicas.as_ref()).filter(|_| replicas > 1) else { return };
        for (need, why) in [
            (Need::RealTime, "in virtual time a service has no replicas"),
            (Need::Rest, "controllers of a service with replicas are not built"),
        ] {
            if !needs.contains(&need) {
                self.refuse(&count.span, why, format!("needs `{need}`"), format!("add `{need}` to `needs`"));
            }
        }
    }

    fn images(&mut self, file: &ServiceFile, kind: ServiceKind) {
        let no_name = |text: &str| text.is_empty() || text.contains(char::is_whitespace);
        match (&file.image, kind) {
            (None, ServiceKind::Container) => self.refuse(
                &kind_place(file),
                "a service of kind `container` needs an `image`",
                "`image` is missing",
                "add `image: vlab-service`, or `image: quay.io/edge-infrastructure/assisted-service:latest`",
            ),
            (Some(image), ServiceKind::Container) if no_name(&image.text) => self.refuse(
                &image.span,
                "the name of the service's image is empty or contains spaces",
                "not the name of an image",
                "write `image: name` or `image: name:tag`",
            ),
            _ => {}
        }
        for (name, text) in [("image", &file.image), ("postgres_image", &file.postgres_image)] {
            let Some(text) = text else { continue };
            if kind != ServiceKind::Container {
                self.refuse(
                    &text.span,
                    format!("`{name}` is only for a service of kind `container`"),
                    "not used here",
                    "remove it, or write `kind: container`",
                );
            } else if name == "postgres_image" && no_name(&text.text) {
                self.refuse(
                    &text.span,
                    "the name of PostgreSQL's image is empty or contains spaces",
                    "not the name of an image",
                    "write `name:tag`",
                );
            }
        }
    }

    fn program(&mut self, file: &ServiceFile, kind: ServiceKind) {
        match (&file.program, kind) {
            (None, ServiceKind::Process) => self.refuse(
                &kind_place(file),
                "a service of kind `process` needs a `program`",
                "`program` is missing",
                "add `program: /path/to/assisted-service`",
            ),
            (Some(program), ServiceKind::Process) if program.text.is_empty() => self.refuse(
                &program.span,
                "the service's program is empty",
                "no file name",
                "write `program: /path/to/assisted-service`",
            ),
            (Some(program), other) if other != ServiceKind::Process => self.refuse(
                &program.span,
                "`program` is only for a service of kind `process`",
                "not used here",
                "remove it, or write `kind: process`",
            ),
            _ => {}
        }
    }

    fn url(&mut self, file: &ServiceFile, kind: ServiceKind) {
        match (&file.url, kind) {
            (None, ServiceKind::Remote) => self.refuse(
                &kind_place(file),
                "a service of kind `remote` needs its `url`",
                "`url` is missing",
                "add `url: http://...`",
            ),
            (Some(url), ServiceKind::Remote) => {
                if !url.text.starts_with("http://") && !url.text.starts_with("https://") {
                    self.refuse(
                        &url.span,
                        format!("`{}` is not the address of a service", url.text),
                        "not a URL",
                        "it begins with `http://` or `https://`",
                    );
                }
            }
            (Some(url), _) => self.refuse(
                &url.span,
                "`url` is only for a service of kind `remote`",
                "not used here",
                "remove it, or write `kind: remote`",
            ),
            (None, _) => {}
        }
    }

    fn settings(&mut self, file: &ServiceFile, kind: ServiceKind) -> BTreeMap<String, String> {
        if kind == ServiceKind::Remote
            && let Some((_, value)) = file.settings.first_key_value()
        {
            self.refuse(
                &value.span,
                "a run does not configure a remote service",
                "cannot be set",
                "remove `settings`, and configure the service where it is started",
            );
        }
        let mut settings = BTreeMap::new();
        for (name, value) in &file.settings {
            let text = match &value.value {
                serde_json::Value::String(s) => s.clone(),
                serde_json::Value::Null => {
                    self.refuse(
                        &value.span,
                        format!("the setting {name} has no value"),
                        "no value here",
                        "write a value; `\"\"` is the empty text",
                    );
                    continue;
                }
                other => other.to_string(),
            };
            match Settings::default().apply_in_profile(name, &text, 1.0) {
                Ok(()) => {}
                // Only the simulated service lacks what the real one has.
                Err(SettingError::NotSimulated { .. }) if kind != ServiceKind::Simulated => {}
                Err(SettingError::Unknown { name, .. }) => {
                    self.unknown(&value.span, "service setting", &name, Settings::NAMES.iter().copied());
                }
                Err(error) => self.refuse(&value.span, error.to_string(), "not accepted", ""),
            }
            settings.insert(name.clone(), text);
        }
        settings
    }

    fn time_profile(&mut self, file: &ServiceFile) -> String {
        let Some(text) = &file.time_profile else { return "fast".to_owned() };
        let known = self.catalogue.time_profile_names();
        if !known.contains(&text.text) {
            self.unknown(&text.span, "time profile", &text.text, known.iter().map(String::as_str));
        } else if let Err(error) = self.catalogue.time_profile(&text.text) {
            self.refuse(
                &text.span,
                format!("the time profile `{}` cannot be used: {error}", text.text),
                "this profile",
                "",
            );
        }
        text.text.clone()
    }

    pub(super) fn infra_env(&mut self, file: Option<&InfraEnvFile>) -> InfraEnv {
        let none = InfraEnvFile::default();
        let file = file.unwrap_or(&none);
        if let Some(text) = &file.cpu_architecture
            && !ARCHITECTURES.contains(&text.text.as_str())
        {
            self.unknown(&text.span, "processor architecture", &text.text, ARCHITECTURES.iter().copied());
        }
        InfraEnv {
            cpu_architecture: file.cpu_architecture.as_ref().map_or("x86_64", |t| t.text.as_str()).to_owned(),
            image_type: self.read_option(&file.image_type).unwrap_or(ImageType::MinimalIso),
            additional_ntp_sources: file.additional_ntp_sources.clone(),
            kernel_arguments: file.kernel_arguments.clone(),
            iso: file.iso.as_ref().map(|path| path.text.clone().into()),
            static_networks: vec![],
            resources: BTreeMap::new(),
            mistakes: vec![],
            params: self.params(&file.params, &INFRA_ENV),
            refused: file
                .refused
                .as_ref()
                .and_then(|n| self.number(n, "the status of a refusal", 400, 599))
                .and_then(|n| u16::try_from(n).ok()),
        }
    }
}

/// Where the file says how the service is started.
fn kind_place(file: &ServiceFile) -> Place {
    file.kind.as_ref().map_or(0..0, |k| k.span.clone())
}
