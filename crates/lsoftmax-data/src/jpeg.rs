//! Whether a JPEG file is complete. The decoder fills what is missing with grey, without an error.

use std::io::{self, BufRead, ErrorKind, Read};

const END_OF_IMAGE: u8 = 0xD9;

/// Whether the image that a file begins with has its end marker. Other data may follow it.
pub(crate) fn is_complete(file: &mut impl BufRead) -> io::Result<bool> {
    match find_end(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads markers until the end marker. What a segment contains is skipped, since a thumbnail in it has an end marker of its own.
fn find_end(file: &mut impl BufRead) -> io::Result<()> {
    loop {
        match next_marker(file)? {
            END_OF_IMAGE => return Ok(()),
            // The start of the image, restarts and one more have no contents.
            0xD8 | 0xD0..=0xD7 | 0x01 => {}
            _ => {
                let mut length = [0; 2];
                file.read_exact(&mut length)?;
                // It counts itself.
                let rest = u64::from(u16::from_be_bytes(length)).saturating_sub(2);
                if io::copy(&mut file.by_ref().take(rest), &mut io::sink())? < rest {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

/// The next marker, past the coded pixels of a scan: a byte of 0xFF in them is followed by 0. Before a marker it may be repeated.
fn next_marker(file: &mut impl BufRead) -> io::Result<u8> {
    let mut byte = [0];
    loop {
        file.skip_until(0xFF)?;
        file.read_exact(&mut byte)?;
        while byte[0] == 0xFF {
            file.read_exact(&mut byte)?;
        }
        if byte[0] != 0 {
            return Ok(byte[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use image::{ImageFormat, RgbImage};

    use super::*;

    fn jpeg() -> Vec<u8> {
        let image = RgbImage::from_fn(40, 40, |x, y| image::Rgb([x as u8 * 6, y as u8 * 6, 9]));
        let mut file = io::Cursor::new(Vec::new());
        image.write_to(&mut file, ImageFormat::Jpeg).unwrap();
        file.into_inner()
    }

    /// The file with a segment after its start that contains these bytes.
    fn with_segment(file: &[u8], contents: &[u8]) -> Vec<u8> {
        let length = (contents.len() as u16 + 2).to_be_bytes();
        [&file[..2], &[0xFF, 0xE1], &length, contents, &file[2..]].concat()
    }

    #[test]
    fn a_file_is_complete_up_to_its_last_byte_only() {
        let file = jpeg();
        assert!(is_complete(&mut &file[..]).unwrap());
        for length in 0..file.len() {
            assert!(!is_complete(&mut &file[..length]).unwrap(), "{length}");
        }
    }

    #[test]
    fn what_follows_the_image_does_not_matter() {
        let more = [&jpeg()[..], b"\xFF\xDA and more"].concat();
        assert!(is_complete(&mut &more[..]).unwrap());
    }

    #[test]
    fn the_end_of_a_thumbnail_is_not_that_of_the_image() {
        let file = with_segment(&jpeg(), &jpeg());
        assert!(is_complete(&mut &file[..]).unwrap());
        assert!(!is_complete(&mut &file[..file.len() - 2]).unwrap());
    }

    #[test]
    fn fill_before_a_marker_is_skipped() {
        let file = jpeg();
        let (image, end) = file.split_at(file.len() - 2);
        let filled = [image, &[0xFF, 0xFF], end].concat();
        assert!(is_complete(&mut &filled[..]).unwrap());
    }
}
