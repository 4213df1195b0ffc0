//! Load generator: written next.
fn main() {}
