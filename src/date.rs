//! W3C, RFC 822 and HTTP dates, with precision.
