//! Positions on the earth as scores of a sorted set.
//!
//! A position becomes 52 bits: 26 of latitude and 26 of longitude, interleaved, so that near
//! positions have near scores. An [`Area`] turns into a few ranges of scores to look through and a
//! test for each member found there.

use std::ops::Range;

/// Longitudes reach from minus this to this.
pub const LONGITUDE_MAX: f64 = 180.0;
/// Latitudes reach from minus this to this: the square of the Mercator projection.
pub const LATITUDE_MAX: f64 = 85.051_128_78;

/// Bits per coordinate.
const STEP_MAX: u8 = 26;
const EARTH_RADIUS_METRES: f64 = 6_372_797.560_856;
/// Half the circumference in the projection.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// A place on the earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// West is negative.
    pub longitude: f64,
    /// South is negative.
    pub latitude: f64,
}

impl Position {
    /// Whether the position can be encoded.
    pub fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// The score of this position; `None` when it is outside of the limits.
    pub fn to_score(self) -> Option<f64> {
        self.is_valid().then(|| Cell::around(self, STEP_MAX).bits() as f64)
    }

    /// The middle of the cell that a score stands for. Scores that no position has are taken as
    /// Redis takes them: as bits, of which the edges of the map make the best.
    pub fn from_score(score: f64) -> Self {
        Cell::from_bits(score_bits(score)).middle()
    }

    /// Metres along the surface between two positions.
    pub fn distance(self, other: Self) -> f64 {
        let (west, east) = (self.longitude.to_radians(), other.longitude.to_radians());
        let half_width = ((east - west) / 2.0).sin();
        if half_width == 0.0 {
            return self.distance_north(other);
        }
        let (from, to) = (self.latitude.to_radians(), other.latitude.to_radians());
        let half_height = ((to - from) / 2.0).sin();
        let haversine = half_height * half_height + from.cos() * to.cos() * half_width * half_width;
        2.0 * EARTH_RADIUS_METRES * haversine.sqrt().asin()
    }

    /// Metres between the latitudes of two positions.
    fn distance_north(self, other: Self) -> f64 {
        EARTH_RADIUS_METRES * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }

    /// The eleven characters of the geohash that other systems know. The last one is always `0`:
    /// there are only 52 bits.
    pub fn to_geohash(self) -> [u8; 11] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let scale = (1_u64 << STEP_MAX) as f64;
        let latitude = (self.latitude + 90.0) / 180.0 * scale;
        let longitude = (self.longitude + 180.0) / 360.0 * scale;
        let bits = interleave(latitude as u32, longitude as u32);
        std::array::from_fn(|place| match place {
            10 => ALPHABET[0],
            _ => ALPHABET[(bits >> (52 - (place + 1) * 5)) as usize & 31],
        })
    }
}

/// What to search, around a centre; lengths in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// All within this distance.
    Circle {
        /// Metres.
        radius: f64,
    },
    /// All within half of each length to either side.
    Rectangle {
        /// Metres from west to east.
        width: f64,
        /// Metres from south to north.
        height: f64,
    },
}

/// A shape at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Area {
    /// The centre, which is valid.
    pub centre: Position,
    /// The shape around it.
    pub shape: Shape,
}

impl Area {
    /// The distance from the centre if the position lies in the area.
    pub fn distance_inside(&self, position: Position) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => {
                let distance = self.centre.distance(position);
                (distance <= radius).then_some(distance)
            }
            Shape::Rectangle { width, height } => {
                let same_latitude = Position { longitude: self.centre.longitude, ..position };
                let inside = position.distance_north(self.centre) <= height / 2.0
                    && position.distance(same_latitude) <= width / 2.0;
                inside.then(|| self.centre.distance(position))
            }
        }
    }

    /// Ranges of scores that together hold every position of the area: the cell of the centre and
    /// those of its eight neighbours that the area can reach, in the order that Redis looks.
    pub fn score_ranges(&self) -> Vec<Range<f64>> {
        let bounds = self.bounds();
        let mut step = self.estimate_step();
        let mut cell = Cell::around(self.centre, step);
        if step > 1 && !cell.neighbours_reach(&bounds) {
            step -= 1;
            cell = Cell::around(self.centre, step);
        }
        let mut ranges: Vec<Range<f64>> = Vec::with_capacity(9);
        for (east, north) in NEIGHBOURS {
            if step >= 2 && cell.is_useless(&bounds, east, north) {
                continue;
            }
            let range = cell.neighbour(east, north).scores();
            // Around huge areas a neighbour may be the cell itself.
            if ranges.last() != Some(&range) {
                ranges.push(range);
            }
        }
        ranges
    }

    /// The least rectangle in degrees around the area.
    fn bounds(&self) -> Bounds {
        let (half_width, half_height) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Rectangle { width, height } => (width / 2.0, height / 2.0),
        };
        let Position { longitude, latitude } = self.centre;
        let height = (half_height / EARTH_RADIUS_METRES).to_degrees();
        // A degree of longitude is shortest on the side of the pole.
        let edge = if latitude < 0.0 { latitude - height } else { latitude + height };
        let width = (half_width / EARTH_RADIUS_METRES / edge.to_radians().cos()).to_degrees();
        Bounds {
            west: longitude - width,
            east: longitude + width,
            south: latitude - height,
            north: latitude + height,
        }
    }

    /// How fine the cells are so that nine of them cover the area.
    fn estimate_step(&self) -> u8 {
        let mut reach = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Rectangle { width, height } => (width / 2.0).hypot(height / 2.0),
        };
        if reach == 0.0 {
            return STEP_MAX;
        }
        let mut step = 1_i32;
        while reach < MERCATOR_MAX && step < 64 {
            reach *= 2.0;
            step += 1;
        }
        step -= 2;
        let latitude = self.centre.latitude.abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, i32::from(STEP_MAX)) as u8
    }
}

/// The cell itself, then its neighbours as steps to the east and to the north.
const NEIGHBOURS: [(i8, i8); 9] =
    [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];

#[derive(Clone, Copy, Debug)]
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

/// One of the 4^step cells of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    column: u32,
    row: u32,
    step: u8,
}

impl Cell {
    fn around(position: Position, step: u8) -> Self {
        let scale = (1_u64 << step) as f64;
        let row = (position.latitude + LATITUDE_MAX) / (2.0 * LATITUDE_MAX);
        let column = (position.longitude + LONGITUDE_MAX) / (2.0 * LONGITUDE_MAX);
        // The very edge of the map falls into a cell behind the last one, as in Redis.
        Self { column: (column * scale) as u32, row: (row * scale) as u32, step }
    }

    fn from_bits(bits: u64) -> Self {
        Self { column: squash(bits >> 1), row: squash(bits), step: STEP_MAX }
    }

    fn bits(self) -> u64 {
        interleave(self.row, self.column)
    }

    fn bounds(self) -> Bounds {
        let scale = (1_u64 << self.step) as f64;
        let latitude = |row: f64| -LATITUDE_MAX + row / scale * (LATITUDE_MAX - -LATITUDE_MAX);
        let longitude =
            |column: f64| -LONGITUDE_MAX + column / scale * (LONGITUDE_MAX - -LONGITUDE_MAX);
        Bounds {
            west: longitude(f64::from(self.column)),
            east: longitude(f64::from(self.column) + 1.0),
            south: latitude(f64::from(self.row)),
            north: latitude(f64::from(self.row) + 1.0),
        }
    }

    fn middle(self) -> Position {
        let bounds = self.bounds();
        Position {
            longitude: ((bounds.west + bounds.east) / 2.0).clamp(-LONGITUDE_MAX, LONGITUDE_MAX),
            latitude: ((bounds.south + bounds.north) / 2.0).clamp(-LATITUDE_MAX, LATITUDE_MAX),
        }
    }

    /// The map wraps around at its edges, in the direction of the move.
    fn neighbour(self, east: i8, north: i8) -> Self {
        let mask = ((1_u64 << self.step) - 1) as u32;
        let moved = |place: u32, by: i8| match by {
            0 => place,
            _ => place.wrapping_add_signed(i32::from(by)) & mask,
        };
        Self { column: moved(self.column, east), row: moved(self.row, north), step: self.step }
    }

    fn neighbours_reach(self, bounds: &Bounds) -> bool {
        self.neighbour(0, 1).bounds().north >= bounds.north
            && self.neighbour(0, -1).bounds().south <= bounds.south
            && self.neighbour(1, 0).bounds().east >= bounds.east
            && self.neighbour(-1, 0).bounds().west <= bounds.west
    }

    /// Whether the area ends before this neighbour.
    fn is_useless(self, bounds: &Bounds, east: i8, north: i8) -> bool {
        let cell = self.bounds();
        (north < 0 && cell.south < bounds.south)
            || (north > 0 && cell.north > bounds.north)
            || (east < 0 && cell.west < bounds.west)
            || (east > 0 && cell.east > bounds.east)
    }

    fn scores(self) -> Range<f64> {
        let shift = 2 * (STEP_MAX - self.step);
        let bits = self.bits();
        (bits << shift) as f64..((bits + 1) << shift) as f64
    }
}

/// A score as an integer, as the processors that Redis runs on convert it: negative scores wrap,
/// what is too large becomes zero.
fn score_bits(score: f64) -> u64 {
    const TOP: f64 = 9_223_372_036_854_775_808.0;
    let truncated = |score: f64| if (-TOP..TOP).contains(&score) { score as i64 } else { i64::MIN };
    match score < TOP {
        true => truncated(score) as u64,
        false => truncated(score - TOP) as u64 ^ 1 << 63,
    }
}

/// The bits of `even` at places 0, 2, 4 …, those of `odd` at 1, 3, 5 ….
fn interleave(even: u32, odd: u32) -> u64 {
    spread(even) | spread(odd) << 1
}

fn spread(value: u32) -> u64 {
    let mut bits = u64::from(value);
    bits = (bits | bits << 16) & 0x0000_ffff_0000_ffff;
    bits = (bits | bits << 8) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits << 2) & 0x3333_3333_3333_3333;
    (bits | bits << 1) & 0x5555_5555_5555_5555
}

/// The bits at places 0, 2, 4 ….
fn squash(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PALERMO: Position = Position { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Position = Position { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn scores_and_distances_are_those_of_the_manual() {
        assert_eq!(PALERMO.to_score(), Some(3_479_099_956_230_698.0));
        assert_eq!(CATANIA.to_score(), Some(3_479_447_370_796_909.0));
        let stored = Position::from_score(3_479_099_956_230_698.0);
        assert_eq!(stored.longitude, 13.361389338970184);
        assert_eq!(stored.latitude, 38.1155563954963);
        let other = Position::from_score(3_479_447_370_796_909.0);
        assert_eq!(format!("{:.4}", stored.distance(other)), "166274.1516");
        assert_eq!(&stored.to_geohash(), b"sqc8b49rny0");
        assert_eq!(&other.to_geohash(), b"sqdtr74hyu0");
    }

    #[test]
    fn what_lies_outside_of_the_map_is_refused() {
        for (longitude, latitude) in [(180.1, 0.0), (0.0, 86.0), (f64::NAN, 0.0), (0.0, -90.0)] {
            assert_eq!(Position { longitude, latitude }.to_score(), None);
        }
    }

    #[test]
    fn any_score_is_a_position_on_the_map() {
        for score in [-1.0, 1e300, -1e300, f64::NAN, f64::INFINITY, 4_503_599_627_370_496.0] {
            assert!(Position::from_score(score).is_valid(), "{score}");
        }
        let corner = Position { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
        assert_eq!(Position::from_score(corner.to_score().unwrap()), corner);
    }

    fn position() -> impl Strategy<Value = Position> {
        (-180.0..180.0_f64, -85.0..85.0_f64)
            .prop_map(|(longitude, latitude)| Position { longitude, latitude })
    }

    proptest! {
        #[test]
        fn a_position_survives_its_score_to_within_a_metre(position in position()) {
            let back = Position::from_score(position.to_score().unwrap());
            prop_assert!(position.distance(back) < 1.0);
            prop_assert_eq!(back.to_score(), position.to_score());
        }

        #[test]
        fn the_ranges_hold_every_position_of_the_area(
            latitude in -60.0..60.0_f64, longitude in -170.0..170.0_f64,
            radius in 1.0..500_000.0_f64, angle in 0.0..6.2_f64, part in 0.0..1.0_f64,
        ) {
            let centre = Position { longitude, latitude };
            let reach = (radius * part / EARTH_RADIUS_METRES).to_degrees();
            let inside = Position {
                latitude: latitude + reach * angle.sin(),
                longitude: longitude + reach * angle.cos() / latitude.to_radians().cos(),
            };
            let area = Area { centre, shape: Shape::Circle { radius } };
            prop_assume!(area.distance_inside(inside).is_some());
            let score = inside.to_score().unwrap();
            prop_assert!(area.score_ranges().iter().any(|range| range.contains(&score)));
        }

        #[test]
        fn any_area_has_ranges(
            centre in position(), width in 0.0..1e9_f64, height in 0.0..1e9_f64
        ) {
            let ranges = Area { centre, shape: Shape::Rectangle { width, height } }.score_ranges();
            prop_assert!((1..=9).contains(&ranges.len()));
        }
    }
}
