//! The page, and what is said in place of it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::request::Status;

/// The page.
pub(crate) const BODY: &str = "Hello, world!\n";

/// Answers with the date in them, made anew every second.
pub(crate) struct Responses {
    second: u64,
    /// Head and body; the head alone is its first `head_len` octets.
    page: Vec<u8>,
    head_len: usize,
    page_and_close: Vec<u8>,
    head_and_close_len: usize,
    date: String,
}

impl Responses {
    pub(crate) fn new() -> Responses {
        let mut responses = Responses {
            second: 0,
            page: Vec::new(),
            head_len: 0,
            page_and_close: Vec::new(),
            head_and_close_len: 0,
            date: String::new(),
        };
        responses.set_time(seconds_since_epoch());
        responses
    }

    /// Brings the date up to date.
    pub(crate) fn refresh(&mut self) {
        self.set_time(seconds_since_epoch());
    }

    fn set_time(&mut self, second: u64) {
        if self.second == second {
            return;
        }
        self.second = second;
        self.date = http_date(second);
        (self.page, self.head_len) = self.page_with("");
        (self.page_and_close, self.head_and_close_len) = self.page_with("Connection: close\r\n");
    }

    fn page_with(&self, field: &str) -> (Vec<u8>, usize) {
        let head = head("200 OK", &self.date, BODY.len(), field);
        ([head.as_bytes(), BODY.as_bytes()].concat(), head.len())
    }

    /// The answer to GET, or without its body that to HEAD.
    pub(crate) fn page(&self, with_body: bool, close: bool) -> &[u8] {
        let (page, head_len) = match close {
            true => (&self.page_and_close, self.head_and_close_len),
            false => (&self.page, self.head_len),
        };
        if with_body { page } else { &page[..head_len] }
    }

    /// The answer to a method that the page does not have (RFC 9110, 15.5.6).
    pub(crate) fn method_not_allowed(&self, close: bool) -> Vec<u8> {
        let fields = if close { "Allow: GET, HEAD\r\nConnection: close\r\n" } else { "Allow: GET, HEAD\r\n" };
        head("405 Method Not Allowed", &self.date, 0, fields).into_bytes()
    }

    /// The answer to what is no request; the connection ends with it.
    pub(crate) fn refusal(&self, status: Status) -> Vec<u8> {
        let status = match status {
            Status::BadRequest => "400 Bad Request",
            Status::HeadTooLarge => "431 Request Header Fields Too Large",
            Status::NotImplemented => "501 Not Implemented",
            Status::VersionNotSupported => "505 HTTP Version Not Supported",
        };
        head(status, &self.date, 0, "Connection: close\r\n").into_bytes()
    }
}

fn head(status: &str, date: &str, length: usize, fields: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nServer: http_hello\r\nDate: {date}\r\nContent-Type: text/plain\r\n\
         Content-Length: {length}\r\n{fields}\r\n"
    )
}

fn seconds_since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
fn http_date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, time) = (second / 86_400, second % 86_400);
    let (mut year, mut day) = (1970, days);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    let (name, day, month) = (DAYS[(days % 7) as usize], day + 1, MONTHS[month]);
    format!("{name}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_standard() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn the_answer_to_head_is_the_page_without_its_body() {
        let responses = Responses::new();
        for close in [false, true] {
            let page = responses.page(true, close);
            assert!(page.ends_with(BODY.as_bytes()));
            assert_eq!(responses.page(false, close), &page[..page.len() - BODY.len()]);
        }
    }
}
