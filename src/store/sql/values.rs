//! Values on their way to a server and back.
//!
//! The store knows five kinds: nothing, integers, floating point, text, bytes. A
//! server has more, and says which it expects; an integer goes as whichever
//! of its numbers (or as the truth) that is, and all of these come back as one.

use std::error::Error as StdError;

use rusqlite::types::Value;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::Result;

type Failure = Box<dyn StdError + Sync + Send>;

/// A value that goes to a server.
#[derive(Debug)]
pub(super) struct Sent<'v>(pub(super) &'v Value);

impl ToSql for Sent<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Failure> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(number) => integer(*number, ty, out),
            Value::Real(number) => match *ty {
                // Narrower by what the column holds.
                #[allow(clippy::cast_possible_truncation)]
                Type::FLOAT4 => (*number as f32).to_sql(ty, out),
                _ => number.to_sql(&Type::FLOAT8, out),
            },
            Value::Text(text) if text.contains('\0') => spelled(text.clone()).to_sql(ty, out),
            Value::Text(text) => text.to_sql(ty, out),
            Value::Blob(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn integer(number: i64, ty: &Type, out: &mut BytesMut) -> std::result::Result<IsNull, Failure> {
    match *ty {
        Type::BOOL => (number != 0).to_sql(ty, out),
        Type::INT2 => i16::try_from(number)?.to_sql(ty, out),
        Type::INT4 => i32::try_from(number)?.to_sql(ty, out),
        // Exact as far as any of ours goes.
        #[allow(clippy::cast_precision_loss)]
        Type::FLOAT8 => (number as f64).to_sql(ty, out),
        Type::TEXT | Type::VARCHAR | Type::UNKNOWN => number.to_string().to_sql(ty, out),
        _ => number.to_sql(&Type::INT8, out),
    }
}

/// Text as a server can keep it: none of its texts has a zero byte.
pub(super) fn spelled(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Reads all columns of a row.
pub(super) fn read_row(row: &Row, values: &mut Vec<Value>) -> Result<()> {
    values.clear();
    for column in 0..row.len() {
        values.push(row.try_get::<_, Received>(column)?.0);
    }
    Ok(())
}

/// A value that came from a server.
struct Received(Value);

impl<'r> FromSql<'r> for Received {
    fn from_sql(ty: &Type, raw: &'r [u8]) -> std::result::Result<Self, Failure> {
        Ok(Self(match *ty {
            Type::BOOL => Value::Integer(bool::from_sql(ty, raw)?.into()),
            Type::INT2 => Value::Integer(i16::from_sql(ty, raw)?.into()),
            Type::INT4 => Value::Integer(i32::from_sql(ty, raw)?.into()),
            Type::INT8 => Value::Integer(i64::from_sql(ty, raw)?),
            Type::FLOAT4 => Value::Real(f32::from_sql(ty, raw)?.into()),
            Type::FLOAT8 => Value::Real(f64::from_sql(ty, raw)?),
            Type::NUMERIC => numeric(raw)?,
            Type::BYTEA => Value::Blob(raw.to_vec()),
            _ => Value::Text(String::from_sql(&Type::TEXT, raw)?),
        }))
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Failure> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A decimal number (sums are): an integer where it has no fraction. Its form is
/// that of `numeric_send`: the count of digits of base 10,000, the weight of the
/// first, the sign, the scale, the digits.
fn numeric(raw: &[u8]) -> std::result::Result<Value, Failure> {
    let shorts: Vec<i16> =
        raw.as_chunks().0.iter().map(|pair: &[u8; 2]| i16::from_be_bytes(*pair)).collect();
    let [_, weight, sign, _, digits @ ..] = shorts.as_slice() else {
        return Err("a decimal number is cut short".into());
    };
    let is_negative = match sign.cast_unsigned() {
        0 => false,
        0x4000 => true,
        _ => return Err("not a number".into()),
    };
    let whole = usize::try_from(i32::from(*weight) + 1).unwrap_or(0);
    if digits.len() <= whole {
        let mut number: i64 = 0;
        for place in 0..whole {
            let digit = digits.get(place).copied().unwrap_or(0);
            number = number
                .checked_mul(10_000)
                .and_then(|number| number.checked_add(digit.into()))
                .ok_or("a sum is out of range")?;
        }
        return Ok(Value::Integer(if is_negative { -number } else { number }));
    }
    let mut number = 0.0;
    let mut unit = 10_000_f64.powi(i32::from(*weight));
    for digit in digits {
        number += f64::from(*digit) * unit;
        unit /= 10_000.0;
    }
    Ok(Value::Real(if is_negative { -number } else { number }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_are_integers_where_they_have_no_fraction() {
        let raw = |weight: i16, sign: u16, digits: &[i16]| {
            let count = i16::try_from(digits.len()).unwrap();
            let head = [count, weight, sign.cast_signed(), 0];
            head.iter().chain(digits).flat_map(|short| short.to_be_bytes()).collect::<Vec<u8>>()
        };
        for (weight, sign, digits, expected) in [
            (0, 0, &[][..], Value::Integer(0)),
            (0, 0, &[42], Value::Integer(42)),
            (1, 0x4000, &[3, 7], Value::Integer(-30_007)),
            (2, 0, &[1], Value::Integer(100_000_000)),
            (0, 0, &[1, 5_000], Value::Real(1.5)),
            (-1, 0, &[2_500], Value::Real(0.25)),
        ] {
            assert_eq!(numeric(&raw(weight, sign, digits)).unwrap(), expected);
        }
        assert!(numeric(&raw(0, 0xC000, &[])).is_err());
        assert!(numeric(&[0, 1]).is_err());
    }

    #[test]
    fn no_text_has_a_zero_byte() {
        assert_eq!(spelled("a\0b".to_owned()), "a\u{fffd}b");
    }
}
