//! Values of getsockopt(2).

use crate::errno::Errno;

/// Writes as much of an option as there is room for; of those of IP that are an int the first octet, if there is no room for all
/// and the others are zero (`ip_getsockopt` of Linux).
pub(crate) fn put(level: i32, octets: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
    let is_small = level == libc::SOL_IP && octets.len() == 4 && value.len() < 4;
    let is_octet = is_small && i32::from_ne_bytes([octets[0], octets[1], octets[2], octets[3]]) >> 8 == 0;
    let len = octets.len().min(value.len()).min(if is_octet { 1 } else { octets.len() });
    value[..len].copy_from_slice(&octets[..len]);
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_of_ip_are_one_octet_where_there_is_no_room_for_more() {
        let mut room = [0; 2];
        assert_eq!(put(libc::SOL_IP, &200i32.to_ne_bytes(), &mut room), Ok(1));
        assert_eq!(put(libc::SOL_IP, &300i32.to_ne_bytes(), &mut room), Ok(2));
        assert_eq!(put(libc::SOL_IP, &(-1i32).to_ne_bytes(), &mut room), Ok(2));
        assert_eq!(put(libc::SOL_IPV6, &200i32.to_ne_bytes(), &mut room), Ok(2));
        assert_eq!(put(libc::SOL_IP, &200i32.to_ne_bytes(), &mut [0; 64]), Ok(4));
    }
}
