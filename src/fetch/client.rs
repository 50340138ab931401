/// The client.
pub struct Fetcher {}
