//! All wire types in one list, for those who look at them as data: the tests that compare them with the API's schema, and
//! tools that must know a type by its name in that schema.

use serde_json::Value;

use crate::spec::{StructSpec, WireObject};
use crate::types::*;

/// A wire object as data.
#[derive(Clone, Copy, Debug)]
pub struct ObjectEntry {
    /// Its schema.
    pub spec: &'static StructSpec,
    /// Reads a value as this type and writes it again; an error says why it is none.
    pub reserialise: fn(Value) -> Result<Value, serde_json::Error>,
}

/// A wire enumeration as data.
#[derive(Clone, Copy, Debug)]
pub struct EnumEntry {
    /// Name of the definition in the API's schema; `host.status` is the member `status` of `host`.
    pub name: &'static str,
    /// Its words, in the order of the schema.
    pub words: &'static [&'static str],
}

fn reserialise<T: WireObject + serde::Serialize + serde::de::DeserializeOwned>(
    value: Value,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

macro_rules! objects {
    ($($name:ident),* $(,)?) => {
        /// All wire objects, in the order of [`crate::types`].
        pub const OBJECTS: &[ObjectEntry] = &[
            $(ObjectEntry { spec: &<$name as WireObject>::SPEC, reserialise: reserialise::<$name> },)*
        ];
    };
}

macro_rules! enums {
    ($($name:ident = $definition:literal),* $(,)?) => {
        /// All wire enumerations, in the order of [`crate::types`].
        pub const ENUMS: &[EnumEntry] = &[$(EnumEntry { name: $definition, words: $name::NAMES },)*];
    };
}

/// The object of that name in the API's schema.
pub fn object(name: &str) -> Option<&'static ObjectEntry> {
    OBJECTS.iter().find(|e| e.spec.name == name)
}

objects! {
    IgnoredValidations,
    MonitoredOperator,
    OperatorMonitorReport,
    OperatorCreateParams,
    ListVersions,
    PreflightHardwareRequirements,
    OperatorHardwareRequirements,
    HostTypeHardwareRequirementsWrapper,
    HostTypeHardwareRequirements,
    ClusterHostRequirements,
    OperatorHostRequirements,
    ClusterHostRequirementsDetails,
    VersionedClusterHostRequirementsDetails,
    VersionedHostRequirements,
    Event,
    HostCreateParams,
    HostRegistrationResponse,
    Host,
    InstallerArgsParams,
    Steps,
    Step,
    StepReply,
    ConnectivityCheckNic,
    ConnectivityCheckHost,
    BundleCreateParams,
    ClusterCreateParams,
    HostUpdateParams,
    DisconnectedClusterCreateParams,
    V2ClusterUpdateParams,
    ImportClusterParams,
    Cluster,
    LastInstallationPreparation,
    IgnitionEndpoint,
    Platform,
    ImageInfo,
    HostStaticNetworkConfig,
    HostNetwork,
    L2Connectivity,
    L3Connectivity,
    MtuReport,
    ConnectivityRemoteHost,
    ConnectivityReport,
    CompletionParams,
    HostProgress,
    HostProgressInfo,
    ClusterProgressInfo,
    ClusterFinalizingProgress,
    DiskEncryption,
    ErrorBody,
    ClusterDefaultConfig,
    InfraError,
    Interface,
    Disk,
    IoPerf,
    Iscsi,
    Boot,
    SystemVendor,
    Memory,
    Cpu,
    Gpu,
    Route,
    Inventory,
    FreeNetworkAddresses,
    DownloadBootArtifactsRequest,
    RebootForReclaimRequest,
    ApiVipConnectivityRequest,
    ApiVipConnectivityAdditionalRequestHeader,
    ApiVipConnectivityResponse,
    TangConnectivityRequest,
    TangConnectivityResponse,
    DiskSpeedCheckRequest,
    DiskSpeedCheckResponse,
    DomainResolutionRequest,
    DomainResolutionResponse,
    DiskSpeed,
    DiskInfo,
    PlatformExternal,
    Credentials,
    DiskConfigParams,
    DiskSkipFormattingParams,
    IgnitionEndpointHttpHeadersParams,
    NodeLabelParams,
    FencingCredentialsParams,
    DhcpAllocationRequest,
    DhcpAllocationResponse,
    NextStepCmdRequest,
    LogsGatherCmdRequest,
    InstallCmdRequest,
    NtpSynchronizationRequest,
    NtpSynchronizationResponse,
    NtpSource,
    ContainerImageAvailabilityRequest,
    ContainerImageAvailabilityResponse,
    ContainerImageAvailability,
    UpgradeAgentRequest,
    UpgradeAgentResponse,
    VerifyVip,
    VerifiedVip,
    LogsProgressParams,
    Manifest,
    CreateManifestParams,
    UpdateManifestParams,
    HostIgnitionParams,
    OpenshiftVersion,
    OsImage,
    ReleaseImage,
    KernelArgument,
    InfraEnv,
    Proxy,
    InfraEnvCreateParams,
    InfraEnvUpdateParams,
    ClusterNetwork,
    MachineNetwork,
    ServiceNetwork,
    ApiVip,
    IngressVip,
    BindHostParams,
    PresignedUrl,
    LoadBalancer,
    DomainResolutionResponseResolutions,
    TangConnectivityResponseTangServerResponse,
    TangConnectivityResponseTangServerResponseSignatures,
    InventoryTruncation,
    DiskInstallationEligibility,
    MacInterfaceMapItem,
    HostRegistrationResponseNextStepRunnerCommand,
}

enums! {
    HostStatus = "host.status",
    ClusterStatus = "cluster.status",
    Severity = "event.severity",
    StepType = "step-type",
    HostValidationId = "host-validation-id",
    ClusterValidationId = "cluster-validation-id",
    OperatorType = "operator-type",
    OperatorStatus = "operator-status",
    FinalizingStage = "finalizing-stage",
    ImageType = "image_type",
    HostStage = "host-stage",
    DriveType = "drive_type",
    PlatformType = "platform_type",
    DiskRole = "disk-role",
    HostRole = "host-role",
    VipType = "vip_type",
    SourceState = "source_state",
    LogsType = "logs_type",
    LogsState = "logs_state",
    VipVerification = "vip_verification",
}
