//! Positions: equal scores, distances and search results, in equal order.

use store_types::geo::{Area, LATITUDE_MAX, Position, Shape};
use store_types::number::Extended;
use store_types::{Limits, Rng, ScoreBound, SortedSet};

use crate::redis::{Redis, Reply};

fn degrees(rng: &mut Rng, limit: f64) -> f64 {
    (rng.next_u64() as f64 / u64::MAX as f64 * 2.0 - 1.0) * limit
}

fn position(rng: &mut Rng) -> Position {
    let spread = [1.0, 10.0, 180.0][rng.below(3)];
    Position { longitude: degrees(rng, spread), latitude: degrees(rng, LATITUDE_MAX.min(spread)) }
}

fn text(value: f64) -> Vec<u8> {
    Extended::from_f64(value).unwrap().to_text().into_bytes()
}

#[test]
fn scores_positions_names_and_distances_agree() {
    let mut redis = Redis::start();
    let mut rng = Rng::seeded(1);
    for _ in 0..500 {
        let [from, to] = [position(&mut rng), position(&mut rng)];
        redis.say(&["DEL", "g"]);
        for (name, place) in [("a", from), ("b", to)] {
            let (longitude, latitude) = (place.longitude.to_string(), place.latitude.to_string());
            redis.say(&["GEOADD", "g", &longitude, &latitude, name]);
        }
        let score = from.to_score().unwrap();
        assert_eq!(redis.say(&["ZSCORE", "g", "a"]).text(), format!("{score}").into_bytes());
        let [from, to] = [from, to].map(|p| Position::from_score(p.to_score().unwrap()));
        let Reply::List(places) = redis.say(&["GEOPOS", "g", "a"]) else { panic!("no place") };
        let ours = vec![text(from.longitude), text(from.latitude)];
        assert_eq!(places[0].clone().texts(), ours);
        let names = redis.say(&["GEOHASH", "g", "a"]).texts();
        assert_eq!(names[0], from.to_geohash());
        let distance = redis.say(&["GEODIST", "g", "a", "b"]).text();
        assert_eq!(String::from_utf8(distance).unwrap(), format!("{:.4}", from.distance(to)));
    }
}

fn search(set: &SortedSet, area: &Area) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for range in area.score_ranges() {
        let from = set.count_below(ScoreBound::At(range.start));
        let to = set.count_below(ScoreBound::At(range.end));
        for (member, score) in set.range(from..to) {
            if area.distance_inside(Position::from_score(score)).is_some() {
                found.push(member.to_vec());
            }
        }
    }
    found
}

#[test]
fn a_search_finds_the_same_members_in_the_same_order() {
    let mut redis = Redis::start();
    let mut rng = Rng::seeded(2);
    let mut set = SortedSet::new();
    for index in 0..2_000 {
        let place = position(&mut rng);
        let name = format!("m{index}");
        let (longitude, latitude) = (place.longitude.to_string(), place.latitude.to_string());
        redis.say(&["GEOADD", "g", &longitude, &latitude, &name]);
        set.insert(name.as_bytes(), place.to_score().unwrap(), &Limits::default());
    }
    for round in 0..400 {
        let centre = position(&mut rng);
        let size = 10_f64.powi(rng.below(8) as i32) * (1.0 + rng.below(9) as f64);
        let (longitude, latitude) = (centre.longitude.to_string(), centre.latitude.to_string());
        let size_text = size.to_string();
        let other = (size / (1.0 + rng.below(5) as f64)).to_string();
        let mut words = vec!["GEOSEARCH", "g", "FROMLONLAT", &longitude, &latitude];
        let shape = if round % 2 == 0 {
            words.extend(["BYRADIUS", &size_text, "m"]);
            Shape::Circle { radius: size }
        } else {
            words.extend(["BYBOX", &size_text, &other, "m"]);
            Shape::Rectangle { width: size, height: other.parse().unwrap() }
        };
        let theirs = redis.say(&words).texts();
        let ours = search(&set, &Area { centre, shape });
        assert_eq!(ours, theirs, "round {round}: {words:?}");
    }
}
