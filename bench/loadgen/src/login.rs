//! The login of the generator, for brokers that require one.

/// The parameters of CONNECT and of the upgrade request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Header `host` of CONNECT; some brokers expect the name of a virtual host.
    pub host: String,
    /// Headers `login` and `passcode`.
    pub user: Option<(String, String)>,
    /// Path of the WebSocket upgrade.
    pub ws_path: String,
    /// Closing counts as the RECEIPT of DISCONNECT, which some brokers never send over WebSocket.
    pub close_is_receipt: bool,
}

impl Default for Login {
    fn default() -> Login {
        Login { host: "localhost".to_owned(), user: None, ws_path: "/ws".to_owned(), close_is_receipt: false }
    }
}

impl Login {
    /// CONNECT for STOMP 1.2 without heart-beats.
    pub fn connect(&self) -> Vec<u8> {
        let user = match &self.user {
            Some((login, passcode)) => format!("login:{login}\npasscode:{passcode}\n"),
            None => String::new(),
        };
        let host = &self.host;
        format!("CONNECT\naccept-version:1.2\nhost:{host}\nheart-beat:0,0\n{user}\n\0").into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_headers_are_sent_only_with_a_user() {
        let mut login = Login::default();
        assert_eq!(login.connect(), b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\0");
        login.host = "/".to_owned();
        login.user = Some(("guest".to_owned(), "secret".to_owned()));
        let frame = String::from_utf8(login.connect()).expect("text");
        assert!(frame.contains("\nhost:/\n") && frame.contains("\nlogin:guest\npasscode:secret\n\n"));
    }
}
