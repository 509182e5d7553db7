//! Formats of texts that a schema can ask for. Unknown ones take everything, as the real server does.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Does the text have that format?
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "uuid" => {
            let hex: String = text.chars().filter(|c| *c != '-').collect();
            hex.len() == 32 && hex.chars().all(|c| c.is_ascii_hexdigit())
        }
        "mac" => {
            let parts: Vec<&str> = text.split([':', '-']).collect();
            parts.len() == 6 && parts.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
        }
        "cidr" => text.split_once('/').is_some_and(|(address, bits)| {
            let most = match address.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(_)) => 32,
                Ok(std::net::IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            bits.parse::<u8>().is_ok_and(|b| b <= most)
        }),
        _ => true,
    }
}
