//! Which URLs and addresses may be asked at all (SSRF guard).
//!
//! Deny by default: only http and https, no userinfo, no port that belongs to
//! another protocol, and only addresses that are public. The operator's
//! `fetch.allow` makes exceptions by network and port. Everything here is pure;
//! the client asks at each hop, for the URL, for every resolved address and for
//! the address that was really connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

use super::outside;
use crate::config::AllowedAddress;

/// Ports that browsers refuse because another protocol listens there (WHATWG
/// Fetch, "bad port"). All others are allowed: sites on 8080 or 8443 are real.
const BAD_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101,
    102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427,
    465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990,
    993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667,
    6668, 6669, 6679, 6697, 10080,
];

/// IPv4 networks that are not public: first address and prefix length (IANA
/// special-purpose registry), and one public address that is a cloud's metadata
/// door (168.63.129.16).
const CLOSED_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// IPv6 networks inside the global unicast block `2000::/3` that are not public:
/// protocol assignments with Teredo and ORCHID, documentation, 6to4 (which
/// carries an IPv4 address that routers unwrap), documentation again.
const CLOSED_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Longest name of a host in characters (RFC 1035, 2.3.4, as text without the last
/// dot).
const MAX_NAME: usize = 253;

/// Why a URL or an address may not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// Neither http nor https.
    #[error("scheme {0} is not fetched, only http and https are")]
    Scheme(String),
    /// A user name or password stands in the URL. It is not repeated here.
    #[error("user names and passwords in a URL are not sent")]
    Userinfo,
    /// A URL without a host.
    #[error("the URL has no host")]
    NoHost,
    /// A host whose name is longer than DNS has any.
    #[error("the name of the host has more than {MAX_NAME} characters")]
    LongHost,
    /// A port of another protocol.
    #[error("port {0} belongs to another protocol")]
    Port(u16),
    /// An address that is not public and not allowed by the operator.
    #[error("{0} is not a public address and not in fetch.allow")]
    Address(SocketAddr),
    /// Every address of a name is refused.
    #[error("{host} has no public address ({found} found), and none is in fetch.allow")]
    NoAddress {
        /// The name that was resolved.
        host: String,
        /// Addresses that it has.
        found: usize,
    },
}

/// The guard with the operator's exceptions.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Vec<AllowedAddress>,
}

impl Guard {
    /// A guard with these exceptions.
    pub fn new(allow: &[AllowedAddress]) -> Self {
        Self { allow: allow.to_vec() }
    }

    /// Judges what a URL itself shows: scheme, userinfo, port, and the host
    /// where it is an address. A name is judged when it is resolved.
    pub fn check_url(&self, url: &Url) -> Result<(), Blocked> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked::Scheme(outside::text(url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Blocked::Userinfo);
        }
        let port = url.port_or_known_default().ok_or(Blocked::NoHost)?;
        if BAD_PORTS.contains(&port) {
            return Err(Blocked::Port(port));
        }
        match url.host() {
            // The url crate has normalised decimal, octal, hex, short and
            // full-width forms to an address here; the text would hide them.
            Some(Host::Ipv4(ip)) => self.check_addr(SocketAddr::new(ip.into(), port)),
            Some(Host::Ipv6(ip)) => self.check_addr(SocketAddr::new(ip.into(), port)),
            Some(Host::Domain("")) | None => Err(Blocked::NoHost),
            Some(Host::Domain(name)) if name.trim_end_matches('.').len() > MAX_NAME => {
                Err(Blocked::LongHost)
            }
            Some(Host::Domain(_)) => Ok(()),
        }
    }

    /// Judges an address with the port that is to be connected to.
    pub fn check_addr(&self, addr: SocketAddr) -> Result<(), Blocked> {
        if is_public(addr.ip()) || self.is_allowed(addr) {
            return Ok(());
        }
        Err(Blocked::Address(addr))
    }

    /// Is the address one of the operator's exceptions?
    pub fn is_allowed(&self, addr: SocketAddr) -> bool {
        let ip = addr.ip().to_canonical();
        self.allow.iter().any(|allowed| {
            allowed.net.contains(&ip) && allowed.port.is_none_or(|p| p == addr.port())
        })
    }
}

/// Is the address one that anybody on the internet could mean?
///
/// Addresses that carry an IPv4 address are judged by it where real networks
/// use them (IPv4-mapped; NAT64, which DNS64 answers with for every
/// IPv4-only site), and refused where they do not (IPv4-compatible, 6to4,
/// Teredo, local NAT64).
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    !CLOSED_V4.iter().any(|&(net, len)| (ip.to_bits() ^ net.to_bits()) >> (32 - len) == 0)
}

/// The address of IPv4 that one of IPv6 stands for, by itself or behind a translator.
pub(super) fn embedded_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    // RFC 6052: 64:ff9b::/96 with the IPv4 address in the last 32 bits.
    if let [0x64, 0xff9b, 0, 0, 0, 0, high, low] = ip.segments() {
        return Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    }
    ip.to_ipv4_mapped()
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(embedded) = embedded_v4(ip) {
        return is_public_v4(embedded);
    }
    let is_global_unicast = ip.segments()[0] >> 13 == 1;
    is_global_unicast
        && !CLOSED_V6.iter().any(|&(net, len)| (ip.to_bits() ^ net.to_bits()) >> (128 - len) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn allow(net: &str, port: Option<u16>) -> AllowedAddress {
        AllowedAddress { net: net.parse().unwrap(), port }
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_that_are_not_public_are_refused() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:10::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_name_that_dns_cannot_have_is_refused() {
        let long = |len: usize| format!("http://{}.test/", "a.".repeat((len - 5) / 2) + "b");
        for (len, expected) in [(252, Ok(())), (256, Err(Blocked::LongHost))] {
            assert_eq!(Guard::default().check_url(&url(&long(len))), expected, "{len}");
        }
    }

    #[test]
    fn every_spelling_of_loopback_in_a_url_is_refused() {
        for text in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://127.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://0x7F.0x0.0x0.0x1/",
            "http://127.0.0.1./",
            "http://１２７.０.０.１/",
            "http://127。0。0。1/",
            "http://%31%32%37.0.0.1/",
            "http:\\\\127.0.0.1\\",
            "http:/127.0.0.1/",
            "http://0/",
            "http://0.0.0.0/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "https://169.254.169.254/latest/meta-data/",
        ] {
            assert!(
                matches!(Guard::default().check_url(&url(text)), Err(Blocked::Address(_))),
                "{text}: {:?}",
                Guard::default().check_url(&url(text))
            );
        }
    }

    #[test]
    fn schemes_userinfo_and_ports_of_other_protocols_are_refused() {
        let guard = Guard::default();
        for (text, want) in [
            ("ftp://example.org/", Blocked::Scheme("ftp".into())),
            ("file:///etc/passwd", Blocked::Scheme("file".into())),
            ("gopher://example.org/", Blocked::Scheme("gopher".into())),
            ("data:text/xml,x", Blocked::Scheme("data".into())),
            ("http://user@example.org/", Blocked::Userinfo),
            ("http://:secret@example.org/", Blocked::Userinfo),
            ("http://user:secret@example.org/", Blocked::Userinfo),
            ("http://example.org:22/", Blocked::Port(22)),
            ("https://example.org:6667/", Blocked::Port(6667)),
            ("http://example.org:0/", Blocked::Port(0)),
        ] {
            assert_eq!(guard.check_url(&url(text)), Err(want), "{text}");
        }
        for text in ["http://example.org/", "https://example.org:8443/", "http://1.1.1.1:8080/"] {
            assert_eq!(guard.check_url(&url(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_exception_opens_one_port_of_one_network_and_nothing_else() {
        let guard = Guard::new(&[
            allow("127.0.0.1/32", Some(8081)),
            allow("10.1.0.0/16", None),
            allow("fd00::/8", Some(80)),
        ]);
        for text in [
            "http://127.0.0.1:8081/",
            "http://[::ffff:127.0.0.1]:8081/",
            "http://10.1.2.3/",
            "http://10.1.2.3:9999/",
            "http://[fd12::1]/",
        ] {
            assert_eq!(guard.check_url(&url(text)), Ok(()), "{text}");
        }
        for text in [
            "http://127.0.0.1:8082/",
            "http://127.0.0.1/",
            "http://127.0.0.2:8081/",
            "http://10.2.0.1/",
            "https://[fd12::1]/",
            "http://10.1.2.3:22/",
        ] {
            assert!(guard.check_url(&url(text)).is_err(), "{text}");
        }
    }
}
