//! Locations (RFC 1876).

use super::error::Parsed;
use super::field::RdataReader;
use super::lexer::Token;
use super::number::{decimal, fixed_point};
use super::print::{Octets, Words};

/// Latitude 0 and longitude 0 in thousandths of a second of arc.
const EQUATOR: u32 = 1 << 31;
/// The zero of altitude is this far below the WGS 84 spheroid.
const ALTITUDE_BASE_CM: i64 = 10_000_000;

const SIZE_DEFAULT: u8 = 0x12; // 1 m
const HORIZONTAL_DEFAULT: u8 = 0x16; // 10 km
const VERTICAL_DEFAULT: u8 = 0x13; // 10 m

/// `d1 [m1 [s1]] {N|S} d2 [m2 [s2]] {E|W} alt[m] [size[m] [hp[m] [vp[m]]]]` (RFC 1876, 3).
pub(super) fn read(rdata: &mut RdataReader<'_, '_>) -> Parsed<()> {
    let latitude = read_angle(rdata, 90, [b'N', b'S'])?;
    let longitude = read_angle(rdata, 180, [b'E', b'W'])?;
    let altitude = read_altitude(rdata)?;
    let mut precisions = [SIZE_DEFAULT, HORIZONTAL_DEFAULT, VERTICAL_DEFAULT];
    for precision in &mut precisions {
        let Some(token) = rdata.lexer.token()? else { break };
        *precision = token.expect(parse_precision(token.text), "a length of up to 90000000.00m")?;
    }
    rdata.out.push(0); // version
    rdata.out.extend_from_slice(&precisions);
    for number in [latitude, longitude, altitude] {
        rdata.out.extend_from_slice(&number.to_be_bytes());
    }
    Ok(())
}

/// Degrees, minutes and seconds up to a letter for the hemisphere, of which the first counts up.
fn read_angle(rdata: &mut RdataReader<'_, '_>, degrees_max: u64, letters: [u8; 2]) -> Parsed<u32> {
    const DEGREES: &str = "degrees";
    let token = rdata.lexer.require_word(DEGREES)?;
    let mut angle_ms = token.expect(decimal(token.text, degrees_max), DEGREES)? * 3_600_000;
    let hemisphere = |token: &Token<'_>| match token.text {
        [letter] => letters.iter().position(|known| known.eq_ignore_ascii_case(letter)),
        _ => None,
    };

    let mut token = rdata.lexer.require_word("minutes or a hemisphere")?;
    if hemisphere(&token).is_none() {
        angle_ms += token.expect(decimal(token.text, 59), "minutes or a hemisphere")? * 60_000;
        token = rdata.lexer.require_word("seconds or a hemisphere")?;
    }
    if hemisphere(&token).is_none() {
        let seconds_ms = fixed_point(token.text, 3).filter(|&seconds_ms| seconds_ms < 60_000);
        angle_ms += token.expect(seconds_ms, "seconds or a hemisphere")?;
        token = rdata.lexer.require_word("a hemisphere")?;
    }
    let hemisphere = token.expect(hemisphere(&token), "a hemisphere")?;
    let angle_ms = Some(angle_ms).filter(|&angle_ms| angle_ms <= degrees_max * 3_600_000);
    let angle_ms = token.expect(angle_ms, "an angle that is on Earth")? as u32;
    Ok(if hemisphere == 0 { EQUATOR + angle_ms } else { EQUATOR - angle_ms })
}

/// Metres from -100000.00 to 42849672.95, in centimetres above the base.
fn read_altitude(rdata: &mut RdataReader<'_, '_>) -> Parsed<u32> {
    const EXPECTED: &str = "an altitude from -100000.00m to 42849672.95m";
    let token = rdata.lexer.require_word(EXPECTED)?;
    let (sign, metres) = match token.text.strip_prefix(b"-") {
        Some(metres) => (-1, metres),
        None => (1, token.text),
    };
    let altitude = fixed_point(without_unit(metres), 2)
        .and_then(|altitude_cm| i64::try_from(altitude_cm).ok())
        .and_then(|altitude_cm| u32::try_from(ALTITUDE_BASE_CM + sign * altitude_cm).ok());
    token.expect(altitude, EXPECTED)
}

/// Metres as centimetres: a digit and a power of ten, four bits each. Digits behind the first are dropped.
fn parse_precision(text: &[u8]) -> Option<u8> {
    let mut digit = fixed_point(without_unit(text), 2)?;
    let mut exponent = 0;
    while digit >= 10 {
        digit /= 10;
        exponent += 1;
    }
    (exponent <= 9).then_some((digit as u8) << 4 | exponent)
}

/// The form that [`read`] reads. Lengths whose digits are none are not given the right text.
pub(super) fn print(words: &mut Words<'_>, octets: &mut Octets<'_>) -> Option<()> {
    let _version = octets.u8()?;
    let precisions = octets.take(3)?;
    print_angle(words, octets.u32()?, ['N', 'S']);
    print_angle(words, octets.u32()?, ['E', 'W']);
    let altitude_cm = i64::from(octets.u32()?) - ALTITUDE_BASE_CM;
    let (sign, cm) = (if altitude_cm < 0 { "-" } else { "" }, altitude_cm.unsigned_abs());
    words.push(format_args!("{sign}{}.{:02}m", cm / 100, cm % 100));
    for precision in precisions {
        let cm = u64::from(precision >> 4) * 10u64.pow(u32::from(precision & 0xf));
        match cm {
            0..100 => words.push(format_args!("0.{cm:02}m")),
            _ => words.push(format_args!("{}m", cm / 100)),
        }
    }
    Some(())
}

fn print_angle(words: &mut Words<'_>, number: u32, letters: [char; 2]) {
    let (angle_ms, letter) = (number.abs_diff(EQUATOR), letters[usize::from(number < EQUATOR)]);
    let (degrees, minutes, ms) = (angle_ms / 3_600_000, angle_ms / 60_000 % 60, angle_ms % 60_000);
    words.push(format_args!("{degrees} {minutes} {}.{:03} {letter}", ms / 1000, ms % 1000));
}

fn without_unit(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"m").or_else(|| text.strip_suffix(b"M")).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{rdata, refusal};

    fn numbers(octets: &[u8]) -> Vec<u32> {
        octets[4..].chunks(4).map(|chunk| u32::from_be_bytes(chunk.try_into().unwrap())).collect()
    }

    #[test]
    fn the_examples_of_rfc_1876_are_read() {
        let octets = rdata("LOC", "42 21 54 N 71 06 18 W -24m 30m");
        assert_eq!(octets[..4], [0, 0x33, 0x16, 0x13]);
        assert_eq!(numbers(&octets), [(1 << 31) + 152_514_000, (1 << 31) - 255_978_000, 10_000_000 - 2400]);
        let octets = rdata("LOC", "32 7 19 S 116 2 25.123 E 10m 1m 10000m 10m");
        assert_eq!(octets[..4], [0, 0x12, 0x16, 0x13]);
        assert_eq!(numbers(&octets)[1], (1 << 31) + 417_745_123);
        assert_eq!(rdata("LOC", "42 N 71 w 0").len(), 16);
    }

    #[test]
    fn what_is_not_on_earth_is_refused() {
        for text in [
            "91 N 0 E 0m",
            "90 0 1 N 0 E 0m",
            "0 N 181 E 0m",
            "0 60 N 0 E 0m",
            "0 0 60 N 0 E 0m",
            "0 E 0 N 0m",
            "0 N 0 E -100000.01m",
            "0 N 0 E 42849672.96m",
            "0 N 0 E 0.001m",
            "0 N 0 E 0m 90000000.00m0",
            "0 N 0 E",
            "0 N 0 E 0m 1m 1m 1m 1m",
            "0 0.0001 N 0 E 0m",
            "-1 N 0 E 0m",
            "0 N 0 E 0m 100000000m",
        ] {
            assert!(refusal("LOC", text).starts_with("expected"), "{text}");
        }
    }

    #[test]
    fn the_extremes_are_read() {
        assert_eq!(numbers(&rdata("LOC", "90 S 180 W -100000.00m"))[2], 0);
        assert_eq!(numbers(&rdata("LOC", "90 N 180 E 42849672.95m"))[2], u32::MAX);
        assert_eq!(rdata("LOC", "0 N 0 E 0m 90000000m 0m 0.01m")[1..4], [0x99, 0x00, 0x10]);
    }
}
